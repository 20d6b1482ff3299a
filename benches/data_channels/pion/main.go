// A client with one data channel, in pion: pion URL ordered|unordered. Its lines are those of client.mjs.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/pion/webrtc/v4"
)

func pattern(length int) []byte {
	message := make([]byte, length)
	for n := range message {
		message[n] = byte(n % 251 * 7 % 251)
	}
	return message
}

func letters(length int) string {
	return strings.Repeat("abcdefghij", length/10+1)[:length]
}

func hear(message webrtc.DataChannelMessage) {
	switch {
	case message.IsString && string(message.Data) == letters(len(message.Data)):
		fmt.Println("text", len(message.Data))
	case !message.IsString && bytes.Equal(message.Data, pattern(len(message.Data))):
		fmt.Println("bytes", len(message.Data))
	default:
		fmt.Println("damaged")
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	engine := webrtc.SettingEngine{}
	engine.SetIncludeLoopbackCandidate(true)
	pc, err := webrtc.NewAPI(webrtc.WithSettingEngine(engine)).NewPeerConnection(webrtc.Configuration{})
	check(err)
	ordered := os.Args[2] == "ordered"
	channel, err := pc.CreateDataChannel("mine", &webrtc.DataChannelInit{Ordered: &ordered})
	check(err)
	channel.OnOpen(func() { fmt.Println("open") })
	channel.OnMessage(hear)
	offer, err := pc.CreateOffer(nil)
	check(err)
	gathered := webrtc.GatheringCompletePromise(pc)
	check(pc.SetLocalDescription(offer))
	<-gathered
	response, err := http.Post(os.Args[1], "application/sdp", strings.NewReader(pc.LocalDescription().SDP))
	check(err)
	answer, err := io.ReadAll(response.Body)
	check(err)
	if response.StatusCode != http.StatusCreated {
		log.Fatal(response.Status, " ", string(answer))
	}
	check(pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(answer)}))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		count, length := 1, 0
		if len(words) == 3 {
			count, err = strconv.Atoi(words[1])
			check(err)
		}
		length, err = strconv.Atoi(words[len(words)-1])
		check(err)
		for range count {
			if words[0] == "text" {
				check(channel.SendText(letters(length)))
			} else {
				check(channel.Send(pattern(length)))
			}
		}
	}
	check(pc.Close())
}
