//! Header blocks received: HEADERS and CONTINUATION (RFC 9113 §4.3, §6.2, §6.10).

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

use super::{Connection, Ended};
use crate::config::{BLOCK_BYTES_MAX, BOMB_FACTOR, CONTINUATIONS_MAX};
use crate::frame::{Header, flag, unpadded};
use crate::hpack::{Field, FieldList};
use crate::request::{self, Request};
use crate::stream::{Credit, Sending, Stream};
use crate::{Code, Error, Event, StreamId};

/// Length of the priority fields in HEADERS.
const PRIORITY_BYTES: usize = 5;

/// The purpose for which a header block is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The block opens a stream.
    Request,
    /// The block ends a request's body with trailers.
    Trailers,
    /// The block is decoded only to update the decoder's dynamic table. The stream is then reset.
    Refused(Code),
    /// The block is decoded only to update the decoder's dynamic table.
    Ignored,
}

/// A header block whose frames have not all arrived.
#[derive(Debug)]
pub(super) struct Block {
    stream: u32,
    purpose: Purpose,
    is_last: bool,
    bytes: Vec<u8>,
    continuations: u32,
}

impl Block {
    pub(super) const fn stream(&self) -> u32 {
        self.stream
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn extend(&mut self, fragment: &[u8]) -> Result<(), Error> {
        if self.bytes.len().saturating_add(fragment.len()) > BLOCK_BYTES_MAX {
            return Err(Error::Flood("a header block"));
        }
        self.bytes.extend_from_slice(fragment);
        Ok(())
    }
}

impl Connection {
    /// Handles HEADERS (RFC 9113 §6.2).
    pub(super) fn headers(&mut self, now: Instant, header: Header, payload: &Bytes) -> Result<(), Error> {
        let id = header.stream;
        if id.is_multiple_of(2) {
            return Err(Error::protocol("HEADERS without a stream of a client"));
        }
        let fragment = unpadded(payload, header.has(flag::PADDED)).ok_or(Error::protocol("padding"))?;
        let skipped = if header.has(flag::PRIORITY) { PRIORITY_BYTES } else { 0 };
        let fragment = fragment.get(skipped..).ok_or(Error::frame_size("HEADERS"))?;
        let is_last = header.has(flag::END_STREAM);
        let purpose = self.purpose_of(now, id, is_last)?;
        let mut block = Block { stream: id, purpose, is_last, bytes: Vec::new(), continuations: 0 };
        block.extend(fragment)?;
        if header.has(flag::END_HEADERS) {
            return self.end_block(now, block);
        }
        self.input.block = Some((block, now));
        Ok(())
    }

    /// Handles CONTINUATION (RFC 9113 §6.10).
    pub(super) fn continuation(
        &mut self,
        now: Instant,
        header: Header,
        fragment: &[u8],
    ) -> Result<(), Error> {
        let Some((block, _)) = &mut self.input.block else {
            return Err(Error::protocol("CONTINUATION without HEADERS"));
        };
        block.continuations = block.continuations.saturating_add(1);
        if block.continuations > CONTINUATIONS_MAX {
            return Err(Error::Flood("CONTINUATION"));
        }
        block.extend(fragment)?;
        if !header.has(flag::END_HEADERS) {
            return Ok(());
        }
        match self.input.block.take() {
            Some((block, _)) => self.end_block(now, block),
            None => Ok(()),
        }
    }

    /// Returns the purpose of a block that begins now (RFC 9113 §5.1, §5.1.1).
    fn purpose_of(&mut self, now: Instant, id: u32, is_last: bool) -> Result<Purpose, Error> {
        if let Some(stream) = self.streams.get(&id) {
            return Ok(match (stream.is_receiving, is_last) {
                (true, true) => Purpose::Trailers,
                (true, false) => Purpose::Refused(Code::PROTOCOL_ERROR),
                (false, _) => Purpose::Refused(Code::STREAM_CLOSED),
            });
        }
        if id <= self.last {
            return match self.ended(id) {
                Some(Ended::Reset) => Ok(Purpose::Ignored),
                Some(Ended::Whole) => {
                    Err(Error::Peer { code: Code::STREAM_CLOSED, what: "HEADERS of a closed stream" })
                }
                None => Err(Error::protocol("streams out of order")),
            };
        }
        self.last = id;
        let open = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        if self.shutdown || open >= self.config.streams {
            if !self.shutdown {
                self.spend_reset(now)?;
            }
            return Ok(Purpose::Refused(Code::REFUSED_STREAM));
        }
        Ok(Purpose::Request)
    }

    /// Handles a complete block. Every block must be decoded, because later blocks depend on the decoder's dynamic
    /// table.
    fn end_block(&mut self, now: Instant, block: Block) -> Result<(), Error> {
        let limits = (self.config.fields, self.config.header_list_bytes);
        let give_up = self.config.header_list_bytes.saturating_mul(BOMB_FACTOR);
        let decoded = self.input.decoder.decode(&block.bytes, limits, give_up);
        let list = decoded.map_err(|malformed| Error::compression(malformed.0))?;
        match block.purpose {
            Purpose::Ignored => Ok(()),
            Purpose::Refused(code) => {
                self.spend_control(now, "refused streams")?;
                self.reset_stream(now, block.stream, code);
                Ok(())
            }
            Purpose::Trailers => self.end_with_trailers(now, block.stream, list),
            Purpose::Request => self.begin_request(now, &block, list),
        }
    }

    fn end_with_trailers(&mut self, now: Instant, id: u32, list: FieldList) -> Result<(), Error> {
        let is_short = self.streams.get(&id).is_some_and(|stream| stream.left.is_some_and(|left| left > 0));
        if list.is_over || is_short || request::check_trailers(&list.fields).is_err() {
            return self.stream_error(now, id, Code::PROTOCOL_ERROR);
        }
        self.end_request(now, id, list.fields);
        Ok(())
    }

    fn begin_request(&mut self, now: Instant, block: &Block, list: FieldList) -> Result<(), Error> {
        let id = block.stream;
        if list.is_over {
            return self.refuse_head(now, block);
        }
        let Ok(request) = Request::of(list.fields) else {
            return self.stream_error(now, id, Code::PROTOCOL_ERROR);
        };
        if block.is_last && request.content_length.is_some_and(|length| length > 0) {
            return self.stream_error(now, id, Code::PROTOCOL_ERROR);
        }
        self.open(now, id, request.content_length);
        self.stats.requests = self.stats.requests.saturating_add(1);
        let (stream, has_body) = (StreamId(id), !block.is_last);
        self.events.push_back(Event::Request { stream, request: Box::new(request), has_body });
        if block.is_last {
            self.end_request(now, id, Vec::new());
        }
        Ok(())
    }

    fn open(&mut self, now: Instant, id: u32, left: Option<u64>) {
        let stream = Stream {
            is_receiving: true,
            sending: Sending::Head,
            window: self.new_window(),
            credit: Credit::new(self.config.stream_window),
            unreleased: 0,
            left,
            queue: VecDeque::new(),
            queued: 0,
            is_ready: false,
            unreported: 0,
            progress_at: now,
        };
        self.streams.insert(id, stream);
    }

    /// Refuses a request whose fields are too large (RFC 6585 §5). The application does not learn
    /// of the request.
    fn refuse_head(&mut self, now: Instant, block: &Block) -> Result<(), Error> {
        self.spend_reset(now)?;
        let fields = [Field::new(&b":status"[..], &b"431"[..])];
        self.write_headers(now, block.stream, &fields, true);
        if block.is_last {
            self.note_ended(block.stream, Ended::Whole);
        } else {
            self.reset_stream(now, block.stream, Code::NO_ERROR);
        }
        Ok(())
    }
}
