//! Frames received, except those of header blocks (RFC 9113 §6).

use std::time::Instant;

use bytes::Bytes;
use wire::Reader;

use super::{Connection, Ended, length_u64};
use crate::frame::{Header, Kind, flag, setting, unpadded};
use crate::stream::Window;
use crate::{Code, Error, Event, StreamId};

impl Connection {
    pub(super) fn handle_frame(&mut self, now: Instant, header: Header, payload: Bytes) -> Result<(), Error> {
        if let Some((block, _)) = &self.input.block
            && (header.kind != Kind::Continuation || header.stream != block.stream())
        {
            return Err(Error::protocol("a header block is interrupted"));
        }
        match header.kind {
            Kind::Data => self.data(now, header, &payload),
            Kind::Headers => self.headers(now, header, &payload),
            Kind::Continuation => self.continuation(now, header, &payload),
            Kind::Priority => self.priority(now, header),
            Kind::RstStream => self.rst_stream(now, header, &payload),
            Kind::Settings => self.settings(now, header, &payload),
            Kind::Ping => self.ping(now, header, &payload),
            Kind::GoAway => self.go_away(now, header),
            Kind::WindowUpdate => self.window_update(now, header, &payload),
            Kind::PushPromise => Err(Error::protocol("PUSH_PROMISE of a client")),
            // Frames of unknown types are ignored (RFC 9113 §4.1), but count towards the budget of cheap
            // frames.
            Kind::Unknown => self.spend_control(now, "unknown"),
        }
    }

    pub(super) fn spend_control(&mut self, now: Instant, what: &'static str) -> Result<(), Error> {
        if self.allowances.control.spend(now) { Ok(()) } else { Err(Error::Flood(what)) }
    }

    pub(super) fn spend_reset(&mut self, now: Instant) -> Result<(), Error> {
        if self.allowances.resets.spend(now) { Ok(()) } else { Err(Error::Flood("resets")) }
    }

    /// Handles a stream error (RFC 9113 §5.4.2). Stream errors are limited, because each one causes an
    /// answer.
    pub(super) fn stream_error(&mut self, now: Instant, id: u32, code: Code) -> Result<(), Error> {
        self.spend_reset(now)?;
        self.reset_stream(now, id, code);
        Ok(())
    }

    /// Checks that the stream of a frame has been opened before.
    fn check_opened(&self, id: u32) -> Result<(), Error> {
        if id == 0 {
            return Err(Error::protocol("a frame of a stream without one"));
        }
        if id > self.last || id.is_multiple_of(2) {
            Err(Error::protocol("a frame of an idle stream"))
        } else {
            Ok(())
        }
    }

    /// Returns how a stream was closed, if that is remembered.
    pub(super) fn ended(&self, id: u32) -> Option<Ended> {
        self.ended.iter().rev().find(|(ended, _)| *ended == id).map(|(_, why)| *why)
    }

    /// Handles DATA (RFC 9113 §6.1).
    fn data(&mut self, now: Instant, header: Header, payload: &Bytes) -> Result<(), Error> {
        let id = header.stream;
        self.check_opened(id)?;
        if !self.input.credit.take(header.length) {
            return Err(Error::flow_control("the window of the connection"));
        }
        let data = unpadded(payload, header.has(flag::PADDED)).ok_or(Error::protocol("padding"))?;
        let data = payload.slice_ref(data);
        let is_last = header.has(flag::END_STREAM);
        if data.is_empty() && !is_last {
            self.spend_control(now, "empty DATA")?;
        }
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.is_receiving) else {
            self.release_connection(now, header.length);
            return match self.ended(id) {
                // The frame was in flight when this side reset the stream.
                Some(Ended::Reset) => Ok(()),
                Some(Ended::Whole) | None => self.stream_error(now, id, Code::STREAM_CLOSED),
            };
        };
        if !stream.credit.take(header.length) {
            self.release_connection(now, header.length);
            return self.stream_error(now, id, Code::FLOW_CONTROL_ERROR);
        }
        let short = match &mut stream.left {
            Some(left) => match left.checked_sub(length_u64(data.len())) {
                Some(rest) => {
                    *left = rest;
                    is_last && rest > 0
                }
                None => true,
            },
            None => false,
        };
        if short {
            self.release_connection(now, header.length);
            return self.stream_error(now, id, Code::PROTOCOL_ERROR);
        }
        stream.unreleased = stream.unreleased.saturating_add(header.length);
        let padding = header.length.saturating_sub(data.len());
        if !data.is_empty() {
            self.events.push_back(Event::Body { stream: StreamId(id), bytes: data });
        }
        if padding > 0 {
            self.release(now, StreamId(id), padding);
        }
        if is_last {
            self.end_request(now, id, Vec::new());
        }
        Ok(())
    }

    /// Completes the peer's side of a stream.
    pub(super) fn end_request(&mut self, now: Instant, id: u32, trailers: Vec<crate::hpack::Field>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.is_receiving = false;
            self.events.push_back(Event::BodyEnd { stream: StreamId(id), trailers });
            self.settle(now, id);
        }
    }

    /// Handles PRIORITY (RFC 9113 §6.3): checks the frame, and ignores its content.
    fn priority(&mut self, now: Instant, header: Header) -> Result<(), Error> {
        self.spend_control(now, "PRIORITY")?;
        match (header.stream, header.length) {
            (0, _) => Err(Error::protocol("PRIORITY without a stream")),
            (_, 5) => Ok(()),
            (id, _) if self.streams.contains_key(&id) => self.stream_error(now, id, Code::FRAME_SIZE_ERROR),
            (_, _) => Err(Error::frame_size("PRIORITY")),
        }
    }

    /// Handles RST_STREAM (RFC 9113 §6.4).
    fn rst_stream(&mut self, now: Instant, header: Header, payload: &[u8]) -> Result<(), Error> {
        let code = Reader::new(payload).u32().ok().filter(|_| header.length == 4);
        let code = Code(code.ok_or(Error::frame_size("RST_STREAM"))?);
        self.check_opened(header.stream)?;
        self.spend_reset(now)?;
        if self.streams.contains_key(&header.stream) {
            self.stats.resets = self.stats.resets.saturating_add(1);
            self.forget(now, header.stream, Ended::Whole);
            self.events.push_back(Event::Reset { stream: StreamId(header.stream), code });
            self.end_if_over(now);
        }
        Ok(())
    }

    /// Handles SETTINGS (RFC 9113 §6.5).
    fn settings(&mut self, now: Instant, header: Header, payload: &[u8]) -> Result<(), Error> {
        if header.stream != 0 {
            return Err(Error::protocol("SETTINGS of a stream"));
        }
        if header.has(flag::ACK) {
            return if header.length == 0 {
                self.spend_control(now, "SETTINGS")
            } else {
                Err(Error::frame_size("SETTINGS with ACK"))
            };
        }
        if !header.length.is_multiple_of(6) {
            return Err(Error::frame_size("SETTINGS"));
        }
        self.spend_control(now, "SETTINGS")?;
        let mut reader = Reader::new(payload);
        let mut stream_window = self.output.stream_window;
        while let (Ok(id), Ok(value)) = (reader.u16(), reader.u32()) {
            let size = usize::try_from(value).unwrap_or(usize::MAX);
            match id {
                setting::HEADER_TABLE_SIZE => self.output.encoder.resize(size),
                setting::ENABLE_PUSH if value > 1 => return Err(Error::protocol("SETTINGS_ENABLE_PUSH")),
                setting::INITIAL_WINDOW_SIZE if value > 0x7fff_ffff => {
                    return Err(Error::flow_control("SETTINGS_INITIAL_WINDOW_SIZE"));
                }
                setting::INITIAL_WINDOW_SIZE => stream_window = value,
                setting::MAX_FRAME_SIZE if !(16_384..=0xff_ffff).contains(&value) => {
                    return Err(Error::protocol("SETTINGS_MAX_FRAME_SIZE"));
                }
                // Other settings are ignored, including MAX_FRAME_SIZE: frames larger than the default
                // would only make other streams wait longer.
                _ => {}
            }
        }
        self.set_stream_window(stream_window)?;
        self.write_settings_ack(now);
        Ok(())
    }

    /// Changes the send window of all streams (RFC 9113 §6.9.2).
    fn set_stream_window(&mut self, window: u32) -> Result<(), Error> {
        let change = i64::from(window).saturating_sub(i64::from(self.output.stream_window));
        if change == 0 {
            return Ok(());
        }
        self.output.stream_window = window;
        for stream in self.streams.values_mut() {
            if !stream.window.add(change) {
                return Err(Error::flow_control("a window over the limit"));
            }
        }
        let ids: Vec<u32> = self.streams.keys().copied().collect();
        for id in ids {
            self.make_ready(id);
        }
        Ok(())
    }

    /// Handles PING (RFC 9113 §6.7).
    fn ping(&mut self, now: Instant, header: Header, payload: &[u8]) -> Result<(), Error> {
        if header.stream != 0 {
            return Err(Error::protocol("PING of a stream"));
        }
        let data = Reader::new(payload).array::<8>().ok().filter(|_| header.length == 8);
        let data = data.ok_or(Error::frame_size("PING"))?;
        self.spend_control(now, "PING")?;
        if !header.has(flag::ACK) {
            self.write_pong(now, data);
        }
        Ok(())
    }

    /// Handles GOAWAY (RFC 9113 §6.8). Open streams continue.
    fn go_away(&mut self, now: Instant, header: Header) -> Result<(), Error> {
        if header.stream != 0 {
            return Err(Error::protocol("GOAWAY of a stream"));
        }
        if header.length < 8 {
            return Err(Error::frame_size("GOAWAY"));
        }
        self.spend_control(now, "GOAWAY")?;
        self.peer_leaves = true;
        self.end_if_over(now);
        Ok(())
    }

    /// Handles WINDOW_UPDATE (RFC 9113 §6.9).
    fn window_update(&mut self, now: Instant, header: Header, payload: &[u8]) -> Result<(), Error> {
        let increment = Reader::new(payload).u32().ok().filter(|_| header.length == 4);
        let increment = increment.ok_or(Error::frame_size("WINDOW_UPDATE"))? & 0x7fff_ffff;
        if !self.allowances.updates.spend(now) {
            return Err(Error::Flood("WINDOW_UPDATE"));
        }
        let id = header.stream;
        if id == 0 {
            if increment == 0 {
                return Err(Error::protocol("WINDOW_UPDATE by nothing"));
            }
            let fits = self.output.window.add(i64::from(increment));
            return if fits { Ok(()) } else { Err(Error::flow_control("a window over the limit")) };
        }
        self.check_opened(id)?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if increment == 0 {
            return self.stream_error(now, id, Code::PROTOCOL_ERROR);
        }
        if !stream.window.add(i64::from(increment)) {
            return self.stream_error(now, id, Code::FLOW_CONTROL_ERROR);
        }
        self.make_ready(id);
        Ok(())
    }

    /// Returns the send window of a new stream.
    pub(super) fn new_window(&self) -> Window {
        Window::new(self.output.stream_window)
    }
}
