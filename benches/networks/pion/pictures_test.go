package main

import (
	"testing"
	"time"

	"github.com/pion/rtp"
)

const (
	keySlice, slice = 0x65, 0x41
)

// of is a packet of a picture of two: a fragment of a NAL unit with this header.
func of(number uint16, header byte, isLast bool) *rtp.Packet {
	flags := header & kind
	if !isLast {
		flags |= 0x80
	}
	return &rtp.Packet{
		Header:  rtp.Header{SequenceNumber: number, Timestamp: uint32(number/2) * 3600, Marker: isLast},
		Payload: []byte{header&0x60 | fuA, flags, 0},
	}
}

// shown is the number of pictures that are seen of those with these headers, without the missing packets.
func shown(headers []byte, missing ...uint16) *pictures {
	begin := time.Unix(1, 0)
	found := &pictures{}
	for index, header := range headers {
		for part := range uint16(2) {
			number := uint16(index)*2 + part
			isMissing := false
			for _, one := range missing {
				isMissing = isMissing || one == number
			}
			if !isMissing {
				found.push(of(number, header, part == 1), begin.Add(time.Duration(number)*20*time.Millisecond))
			}
		}
	}
	found.advance(begin.Add(time.Minute))
	return found
}

func TestPicturesCountFromAKeyFrameUntilAPacketIsMissing(t *testing.T) {
	stream := []byte{keySlice, slice, slice, slice, slice, keySlice, slice}
	for _, row := range []struct {
		what    string
		headers []byte
		missing []uint16
		shown   int
	}{
		{"all", stream, nil, 7},
		{"a packet is missing until the next key frame", stream, []uint16{5}, 4},
		{"half of the key frame is missing", stream, []uint16{0}, 2},
		{"two halves are missing", stream, []uint16{7, 8}, 5},
		{"the stream begins within a GOP", stream[1:], nil, 2},
	} {
		found := shown(row.headers, row.missing...)
		if len(found.shown) != row.shown || found.lost > len(row.missing) {
			t.Errorf("%s: %d pictures, %d lost", row.what, len(found.shown), found.lost)
		}
	}
}

func TestALatePacketIsWaitedForAndDelaysItsPicture(t *testing.T) {
	begin := time.Unix(1, 0)
	found := &pictures{}
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	found.push(of(0, keySlice, false), at(0))
	found.push(of(1, keySlice, true), at(1))
	found.push(of(3, slice, true), at(300))
	found.push(of(2, slice, false), at(700))
	if len(found.shown) != 2 || found.shown[0] != at(1).UnixMilli() || found.shown[1] != at(700).UnixMilli() || found.lost != 0 {
		t.Errorf("%v, %d lost", found.shown, found.lost)
	}
}

func TestAWholeKeyFrameEndsTheWaitAndAGapThatLastsAsksForOne(t *testing.T) {
	begin := time.Unix(1, 0)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	found := &pictures{}
	found.push(of(0, keySlice, false), at(0))
	found.push(of(1, keySlice, true), at(1))
	found.push(of(3, slice, true), at(300))
	if found.advance(at(900)); found.isBroken {
		t.Error("given up too early")
	}
	found.push(of(4, keySlice, false), at(910))
	found.push(of(5, keySlice, true), at(920))
	if found.isBroken || len(found.shown) != 2 || found.lost != 1 {
		t.Errorf("%v, %d lost", found.shown, found.lost)
	}
	found.push(of(7, slice, true), at(1000))
	if found.advance(at(2100)); !found.isBroken {
		t.Error("no key frame is asked for")
	}
}

func TestNumbersThatWrapGoOn(t *testing.T) {
	var numbers unwrapper
	for _, row := range [][2]int64{{65534, 65534}, {1, 65537}, {65535, 65535}, {2, 65538}} {
		if found := numbers.unwrap(row[0], 1<<16); found != row[1] {
			t.Errorf("%d: %d", row[0], found)
		}
	}
}
