//! A source's media: frames from packets that are in order, losses, and redundant audio.

use std::collections::VecDeque;
use std::time::Instant;

use media::Codec;
use rtp::payload::{Continuity, Depacketizer, Format, Part, RedPacket, codec_of_description};
use rtp::receive::{ReceiveEvent, Received};
use rtp::report::ClockMapping;
use rtp::{PayloadType, Ssrc};

use super::key_frames::KeyFrameDemand;
use super::{Incoming, PADDING_WAIT, Source};
use crate::event::Event;

impl Source {
    /// Assembles frames from the packets that are in order. Returns the number of malformed payloads.
    pub(super) fn drain(
        &mut self,
        now: Instant,
        ssrc: Ssrc,
        incoming: &mut Incoming,
        events: &mut VecDeque<Event>,
    ) -> u64 {
        let mut malformed = 0;
        let listens = incoming.is_current(ssrc);
        while let Some(event) = self.receiver.poll_event() {
            match event {
                _ if !listens => self.gap = true,
                ReceiveEvent::Packet(packet) => {
                    malformed += u64::from(self.take(&packet, incoming, events).is_err())
                }
                // The next packet of media will tell whether pictures are missing.
                ReceiveEvent::Lost { packets }
                    if self.continuity.as_ref().is_some_and(Continuity::may_pad) =>
                {
                    self.missing = self.missing.saturating_add(packets);
                    self.lost_at.get_or_insert(now + PADDING_WAIT);
                }
                ReceiveEvent::Lost { .. } => self.lose(incoming, events),
                ReceiveEvent::Restarted => {
                    // The source has restarted with a new stream, whose timestamps are unrelated to the
                    // former ones.
                    self.clock = ClockMapping::new(self.clock.clock_rate());
                    self.forget_format();
                    if let Some(described) = &mut self.described {
                        described.restart();
                    }
                    self.lose(incoming, events);
                }
            }
        }
        if self.lost_at.is_some_and(|at| at <= now) {
            self.lose(incoming, events);
        }
        malformed
    }

    /// The key frame requests of the source's layer.
    fn requests<'a>(&self, incoming: &'a mut Incoming) -> Option<&'a mut KeyFrameDemand> {
        incoming.layers.get_mut(usize::from(self.layer)).map(|layer| &mut layer.requests)
    }

    /// Resets the source when its layer stops taking media from it.
    pub(super) fn leave(&mut self) {
        self.forget_format();
        self.described = None;
        (self.gap, self.needs_key_frame) = (true, true);
    }

    fn forget_format(&mut self) {
        (self.format, self.last_frame) = (None, None);
        (self.continuity, self.missing, self.lost_at) = (None, 0, None);
    }

    /// Reports a loss of packets, even if the video is already undecodable.
    fn lose(&mut self, incoming: &mut Incoming, events: &mut VecDeque<Event>) {
        (self.gap, self.needs_key_frame) = (true, false);
        (self.missing, self.lost_at) = (0, None);
        if let Some(continuity) = &mut self.continuity {
            continuity.lose();
        }
        self.spoil(incoming, events);
    }

    /// Marks the video as undecodable until the next key frame, and reports that once.
    fn spoil(&mut self, incoming: &mut Incoming, events: &mut VecDeque<Event>) {
        if incoming.is_video() {
            self.requests(incoming).map(KeyFrameDemand::request);
            if !std::mem::replace(&mut self.needs_key_frame, true) {
                events.push_back(Event::PictureLost { section: self.section, layer: self.layer });
            }
        }
    }

    fn take(
        &mut self,
        packet: &Received,
        incoming: &mut Incoming,
        events: &mut VecDeque<Event>,
    ) -> Result<(), rtp::payload::Error> {
        // Padding has no content, and may have any payload type.
        let index = incoming.format_of(packet.payload_type).filter(|_| !packet.payload.is_empty());
        let Some(index) = index else { return Ok(()) };
        if self.format.as_ref().is_none_or(|(known, _)| *known != index) {
            let described = incoming.section.formats.get(index).map(|format| &format.remote);
            // Comfort noise, telephone events and similar payloads are not frames.
            let Some(format) = described.map(Format::of_description).transpose()?.flatten() else {
                return Ok(());
            };
            let clock_rate = incoming.clock_rate(index);
            if clock_rate != self.clock.clock_rate() {
                self.clock = ClockMapping::new(clock_rate);
            }
            let codec = described.and_then(codec_of_description).filter(|_| incoming.is_video());
            // Where retransmission has an SSRC of its own, padding uses that, and numbers of H.264 prove too little.
            let pads = |codec: &Codec| *codec != Codec::H264 || !incoming.repairs(index);
            self.continuity = codec.filter(pads).and_then(Continuity::new);
            let depacketizer = Depacketizer::new(format)?;
            let is_layered = incoming.takes_layers_of(index);
            let depacketizer = if is_layered { depacketizer.with_layers() } else { depacketizer };
            self.format = Some((index, depacketizer));
            events.push_back(Event::Format { section: self.section, format: index });
        }
        let missing = std::mem::take(&mut self.missing);
        self.lost_at = None;
        let (timestamp, marker) = (packet.timestamp, packet.marker);
        if let Some(continuity) = &mut self.continuity
            && !continuity.handle_packet(missing, timestamp, marker, &packet.payload)
        {
            self.lose(incoming, events);
            // The packet itself is known.
            if let Some(continuity) = &mut self.continuity {
                continuity.handle_packet(0, timestamp, marker, &packet.payload);
            }
        }
        if let (Some(described), Some((_, depacketizer))) = (&mut self.described, &mut self.format)
            && let Some(layer) = described.take(packet.sequence.number(), timestamp)
        {
            depacketizer.note_layer(timestamp, layer);
        }
        let gap = std::mem::take(&mut self.gap);
        let part = Part { timestamp: packet.timestamp, marker: packet.marker, gap, payload: &packet.payload };
        match incoming.bare_of(packet.payload_type) {
            Some(bare) => self.take_redundant(&part, bare, incoming, events),
            None => self.take_part(&part, incoming, events),
        }
    }

    /// Passes on the frames in a redundant packet that have not been received before.
    fn take_redundant(
        &mut self,
        part: &Part<'_>,
        bare: PayloadType,
        incoming: &mut Incoming,
        events: &mut VecDeque<Event>,
    ) -> Result<(), rtp::payload::Error> {
        let red = RedPacket::read(part.payload)?;
        for block in red.earlier(bare) {
            let timestamp = part.timestamp.wrapping_sub(block.ticks_before);
            // Before the first frame, no earlier frame counts as missing.
            let is_missing = |last: u32| timestamp.wrapping_sub(last).cast_signed() > 0;
            if self.last_frame.is_some_and(is_missing) {
                let earlier = Part { timestamp, payload: block.payload, ..*part };
                self.take_part(&earlier, incoming, events)?;
            }
        }
        let own = red.own();
        if own.payload_type != bare {
            return Ok(());
        }
        self.take_part(&Part { payload: own.payload, ..*part }, incoming, events)
    }

    fn take_part(
        &mut self,
        part: &Part<'_>,
        incoming: &mut Incoming,
        events: &mut VecDeque<Event>,
    ) -> Result<(), rtp::payload::Error> {
        let Some((_, depacketizer)) = &mut self.format else { return Ok(()) };
        self.last_frame = Some(part.timestamp);
        let dropped = depacketizer.stats().dropped;
        let taken = depacketizer.handle_part(part);
        let spoilt = depacketizer.stats().dropped > dropped;
        let is_owed = depacketizer.needs_key_frame();
        if spoilt {
            self.spoil(incoming, events);
        }
        while let Some(frame) = self.format.as_mut().and_then(|(_, frames)| frames.poll_frame()) {
            if frame.key_frame {
                self.needs_key_frame = false;
                self.requests(incoming).map(KeyFrameDemand::handle_key_frame);
            } else if self.needs_key_frame && incoming.is_video() {
                // The request for a key frame, or its answer, may have been lost: request again.
                self.requests(incoming).map(KeyFrameDemand::request);
            }
            let sampled = self.clock.time_of(frame.timestamp);
            events.push_back(Event::Frame { section: self.section, layer: self.layer, frame, sampled });
        }
        if is_owed {
            // A spatial layer cannot be decoded before the next key frame.
            self.requests(incoming).map(KeyFrameDemand::request);
        }
        if taken.is_err() {
            self.spoil(incoming, events);
        }
        taken
    }
}
