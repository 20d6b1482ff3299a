// Pion's viewer of one stream: run by stacks.py, which carries its offer to the server.
//
//  1. It prints its offer, a line of JSON.
//  2. It reads the answer, a line of JSON, in which the relay is the server's only candidate.
//  3. It notes each picture of H.264 that can be decoded, and each packet of the audio.
//  4. It reads a further line, or the end of the input, and prints what it has seen.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
)

const (
	lookEvery = 500 * time.Millisecond
	tick      = 10 * time.Millisecond
	// Between two requests for a key frame.
	pliEvery = time.Second
)

type report struct {
	Pictures []int64      `json:"pictures"`
	Looks    []look       `json:"looks"`
	Sound    [][2]float64 `json:"sound"`
}

type look struct {
	At    int64      `json:"at"`
	Video *videoLook `json:"video,omitempty"`
}

type videoLook struct {
	FramesDecoded    int `json:"framesDecoded"`
	KeyFramesDecoded int `json:"keyFramesDecoded"`
	PacketsReceived  int `json:"packetsReceived"`
	PacketsLost      int `json:"packetsLost"`
	BytesReceived    int `json:"bytesReceived"`
	PliCount         int `json:"pliCount"`
}

type viewer struct {
	mutex   sync.Mutex
	video   pictures
	ssrc    webrtc.SSRC
	plis    int
	lastPli time.Time
	report  report
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "pion:", err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		version()
		return
	}
	peer, err := connection()
	must(err)
	view := &viewer{report: report{Pictures: []int64{}, Looks: []look{}, Sound: [][2]float64{}}}
	peer.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { view.read(track) })
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
		_, err = peer.AddTransceiverFromKind(kind, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly})
		must(err)
	}
	offer, err := peer.CreateOffer(nil)
	must(err)
	must(peer.SetLocalDescription(offer))
	must(json.NewEncoder(os.Stdout).Encode(map[string]string{"offer": offer.SDP}))

	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadBytes('\n')
	must(err)
	var reply struct{ Answer string }
	must(json.Unmarshal(line, &reply))
	must(peer.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: reply.Answer}))
	go view.watch(peer)

	_, _ = input.ReadBytes('\n')
	view.mutex.Lock()
	defer view.mutex.Unlock()
	view.look(time.Now())
	must(json.NewEncoder(os.Stdout).Encode(view.report))
}

// connection has pion's own codecs and interceptors: NACK, reports and feedback for the whole transport.
func connection() (*webrtc.PeerConnection, error) {
	media, registry := &webrtc.MediaEngine{}, &interceptor.Registry{}
	if err := media.RegisterDefaultCodecs(); err != nil {
		return nil, err
	}
	if err := webrtc.RegisterDefaultInterceptors(media, registry); err != nil {
		return nil, err
	}
	settings := webrtc.SettingEngine{}
	settings.SetIncludeLoopbackCandidate(true)
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	api := webrtc.NewAPI(webrtc.WithMediaEngine(media), webrtc.WithInterceptorRegistry(registry), webrtc.WithSettingEngine(settings))
	return api.NewPeerConnection(webrtc.Configuration{})
}

func version() {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/pion/webrtc/v4" {
			fmt.Println("pion", module.Version)
		}
	}
}

// read takes the packets of a track, those of RTX among them, until the connection ends.
func (v *viewer) read(track *webrtc.TrackRemote) {
	rate := float64(track.Codec().ClockRate)
	var clock unwrapper
	for {
		packet, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		now := time.Now()
		v.mutex.Lock()
		if track.Kind() == webrtc.RTPCodecTypeVideo {
			v.ssrc = track.SSRC()
			v.video.push(packet, now)
		} else if len(packet.Payload) > 0 {
			at := float64(clock.unwrap(int64(packet.Timestamp), 1<<32)) * 1000 / rate
			v.report.Sound = append(v.report.Sound, [2]float64{float64(now.UnixMilli()), at})
		}
		v.mutex.Unlock()
	}
}

// watch asks for key frames where pictures are missing, and looks at the counters.
func (v *viewer) watch(peer *webrtc.PeerConnection) {
	next := time.Now()
	for now := range time.Tick(tick) {
		v.mutex.Lock()
		v.video.advance(now)
		isAsked := v.video.isBroken && v.ssrc != 0 && now.Sub(v.lastPli) >= pliEvery
		if isAsked {
			v.lastPli = now
			v.plis++
		}
		if !now.Before(next) {
			v.look(now)
			next = now.Add(lookEvery)
		}
		ssrc := uint32(v.ssrc)
		v.mutex.Unlock()
		if isAsked {
			_ = peer.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: ssrc}})
		}
	}
}

func (v *viewer) look(now time.Time) {
	v.report.Pictures = v.video.shown
	one := look{At: now.UnixMilli()}
	if v.ssrc != 0 {
		one.Video = &videoLook{len(v.video.shown), v.video.keys, v.video.packets, v.video.lost, v.video.bytes, v.plis}
	}
	v.report.Looks = append(v.report.Looks, one)
}
