package main

import (
	"slices"
	"time"

	"github.com/pion/rtp"
)

const (
	// A missing packet is waited for so long.
	patience = time.Second
	// The first packets may overtake each other.
	settling = 200 * time.Millisecond
)

// unwrapper extends numbers that wrap.
type unwrapper struct {
	last    int64
	isKnown bool
}

func (u *unwrapper) unwrap(value, modulus int64) int64 {
	if !u.isKnown {
		u.last, u.isKnown = value, true
		return value
	}
	ahead := (value - u.last) % modulus
	if ahead < 0 {
		ahead += modulus
	}
	if ahead >= modulus/2 {
		return u.last + ahead - modulus
	}
	u.last += ahead
	return u.last
}

type arrival struct {
	packet *rtp.Packet
	at     time.Time
}

// picture is the one whose packets come now.
type picture struct {
	timestamp     uint32
	isOpen, isKey bool
	isDamaged     bool
}

// pictures finds the access units of H.264 (RFC 6184) that a decoder can show: whole ones, from a key frame on, until a packet is missing.
// Servers that leave out pictures close the gap in the sequence numbers.
type pictures struct {
	numbers   unwrapper
	held      map[int64]arrival
	next      int64
	first     time.Time
	isRunning bool
	current   picture
	isBroken  bool
	// The latest arrival of the packets so far, or when the last gap was given up.
	at                         time.Time
	shown                      []int64
	keys, packets, lost, bytes int
}

func (p *pictures) push(packet *rtp.Packet, now time.Time) {
	p.packets++
	p.bytes += len(packet.Payload)
	if p.held == nil {
		p.held, p.first, p.isBroken, p.shown = map[int64]arrival{}, now, true, []int64{}
	}
	number := p.numbers.unwrap(int64(packet.SequenceNumber), 1<<16)
	if !p.isRunning || number >= p.next {
		if _, isKnown := p.held[number]; !isKnown {
			p.held[number] = arrival{packet, now}
		}
	}
	p.advance(now)
}

// advance takes what is in order, and gives up a gap that has lasted too long or that a whole key frame makes needless.
func (p *pictures) advance(now time.Time) {
	if len(p.held) == 0 || !p.isRunning && now.Sub(p.first) < settling {
		return
	}
	if !p.isRunning {
		p.next, p.isRunning = p.lowest(), true
	}
	for {
		for one, isHeld := p.held[p.next]; isHeld; one, isHeld = p.held[p.next] {
			delete(p.held, p.next)
			p.next++
			if one.at.After(p.at) {
				p.at = one.at
			}
			p.take(one.packet)
		}
		if len(p.held) == 0 {
			return
		}
		if key, isWhole := p.wholeKey(); isWhole {
			p.skip(key, now)
		} else if oldest := p.lowest(); now.Sub(p.oldest()) > patience {
			p.skip(oldest, now)
		} else {
			return
		}
	}
}

func (p *pictures) lowest() int64 {
	return p.numbersHeld()[0]
}

func (p *pictures) numbersHeld() []int64 {
	out := make([]int64, 0, len(p.held))
	for number := range p.held {
		out = append(out, number)
	}
	slices.Sort(out)
	return out
}

func (p *pictures) oldest() time.Time {
	var out time.Time
	for _, one := range p.held {
		if out.IsZero() || one.at.Before(out) {
			out = one.at
		}
	}
	return out
}

// wholeKey is the first packet of a held key frame that misses nothing.
func (p *pictures) wholeKey() (int64, bool) {
	start, isStarted, before := int64(0), false, int64(0)
	for _, number := range p.numbersHeld() {
		packet := p.held[number].packet
		if isStarted && (number != before+1 || packet.Timestamp != p.held[start].packet.Timestamp) {
			isStarted = false
		}
		if unit := read(packet.Payload); !isStarted && unit.isKey && unit.isStart {
			start, isStarted = number, true
		}
		if isStarted && packet.Marker {
			return start, true
		}
		before = number
	}
	return 0, false
}

// skip goes on behind a gap.
func (p *pictures) skip(to int64, now time.Time) {
	for number := p.next; number < to; number++ {
		if _, isHeld := p.held[number]; !isHeld {
			p.lost++
		}
		delete(p.held, number)
	}
	p.current.isDamaged, p.isBroken = true, true
	p.next, p.at = to, now
}

func (p *pictures) take(packet *rtp.Packet) {
	if len(packet.Payload) == 0 {
		return // Padding.
	}
	unit := read(packet.Payload)
	if !p.current.isOpen || p.current.timestamp != packet.Timestamp {
		p.current = picture{timestamp: packet.Timestamp, isOpen: true, isDamaged: !unit.isStart}
	}
	p.current.isKey = p.current.isKey || unit.isKey
	if !packet.Marker {
		return
	}
	p.current.isOpen = false
	if p.current.isDamaged {
		p.isBroken = true
		return
	}
	if p.current.isKey {
		p.isBroken = false
		p.keys++
	}
	if !p.isBroken {
		p.shown = append(p.shown, p.at.UnixMilli())
	}
}

type unit struct {
	isKey, isStart bool
}

const (
	idr, sps   = 5, 7
	stapA, fuA = 24, 28
	kind       = 0x1f
)

// read tells of the NAL units of a payload (RFC 6184 §5.2).
func read(payload []byte) unit {
	out := unit{isStart: true}
	if len(payload) < 2 {
		return out
	}
	is := func(header byte) bool { return header&kind == idr || header&kind == sps }
	switch payload[0] & kind {
	case fuA:
		out.isKey, out.isStart = is(payload[1]), payload[1]&0x80 != 0
	case stapA:
		for rest := payload[1:]; len(rest) > 2; {
			size := int(rest[0])<<8 | int(rest[1])
			out.isKey = out.isKey || is(rest[2])
			rest = rest[min(len(rest), 2+size):]
		}
	default:
		out.isKey = is(payload[0])
	}
	return out
}
