//! A WHIP server's media (RFC 9725): answers to offers, and the frames of the publishers, over one UDP port. HTTP is the
//! program's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use webrtc::dtls::Identity;
use webrtc::ice::{Demux, Path, Route};
use webrtc::media::codec::Codec;
use webrtc::media::nal;
use webrtc::rtp::NtpAnchor;
use webrtc::rtp::payload::codec_of_description;
use webrtc::sdp::{Description, Direction, Media};
use webrtc::{
    Bytes, Config, Datagrams, Event, IceMode, MediaPreference, Peer, SectionId, Seed, offered_formats,
};

use crate::events::Events;
use crate::guard::{self, Guarded, bytes, call};
use crate::{MillstreamAddress, MillstreamDatagram, MillstreamResult};

/// Longest datagram that is read.
const DATAGRAM_BYTES_MAX: usize = 2048;

/// The publishers of a UDP port.
#[derive(Debug)]
pub struct MillstreamWhip {
    _opaque: [u8; 0],
}

/// The kind of an event of WHIP.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MillstreamWhipEventKind {
    /// The publisher is connected.
    Connected = 0,
    /// The data is a frame.
    Frame = 1,
    /// The session has ended; its id has no more events.
    Closed = 2,
    /// Frames of `codec` were lost: those that follow cannot be decoded until the next key frame, which is requested from the
    /// publisher. Until it comes, a program that records or decodes should skip the frames of this codec; further losses are events, too.
    Lost = 3,
    /// The program has not taken the events of the session, which hold 8 MiB, or those of the port, which hold 256 MiB. The session is
    /// closed; later frames are lost.
    Overflow = 4,
}

/// The codec of a frame.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MillstreamCodec {
    /// Another codec, or no frame.
    Other = 0,
    /// H.264, with start codes.
    H264 = 1,
    /// H.265, with start codes.
    H265 = 2,
    /// VP8.
    Vp8 = 3,
    /// VP9.
    Vp9 = 4,
    /// AV1, a temporal unit without its delimiter.
    Av1 = 5,
    /// Opus.
    Opus = 6,
}

/// An event of WHIP.
#[repr(C)]
#[derive(Debug)]
pub struct MillstreamWhipEvent {
    /// The kind.
    pub kind: MillstreamWhipEventKind,
    /// Id of the session.
    pub session: u64,
    /// Codec of a frame, or of the frames that were lost.
    pub codec: MillstreamCodec,
    /// Timestamp of RTP of a frame.
    pub timestamp: u32,
    /// True if a decoder can begin with the frame.
    pub key_frame: bool,
    /// The frame, which belongs to the handle.
    pub data: *const u8,
    /// Number of bytes.
    pub length: usize,
}

/// An event whose data is still owned.
#[derive(Debug)]
struct Owned {
    kind: MillstreamWhipEventKind,
    session: u64,
    codec: MillstreamCodec,
    timestamp: u32,
    key_frame: bool,
    data: Bytes,
}

#[derive(Debug)]
struct Port {
    config: Arc<Config>,
    seed: Seed,
    anchor: NtpAnchor,
    local: SocketAddr,
    demux: Demux<u64>,
    peers: BTreeMap<u64, Peer>,
    /// Number of ids given so far.
    ids: u64,
    /// Sessions that may have datagrams to send.
    touched: BTreeSet<u64>,
    events: Events<Owned>,
    /// Sessions that end because their events were not taken.
    overflown: BTreeSet<u64>,
    /// The event and the answer that were handed out.
    shown: (Bytes, String),
    out: Datagrams,
    /// Next datagram in `out`, and its destination.
    next: Option<(usize, SocketAddr)>,
}

// A handle may move between threads.
const _: () = guard::assert_send::<Guarded<Port>>();

/// Preference for a section: the first supported codec.
fn take(media: &Media) -> Option<MediaPreference> {
    let known = |format| codec_of_description(&format).map(|codec| offered_formats(codec, 96));
    let formats = media.rtp_formats().filter_map(known).find(|formats| !formats.is_empty())?;
    Some(MediaPreference { direction: Direction::RecvOnly, formats, msid: None })
}

impl Port {
    fn new(now: Instant, unix: Duration, local: SocketAddr) -> Option<Self> {
        let seed = Seed::from_os().ok()?;
        let identity = Identity::self_signed(&seed.derive("identity", 0)).ok()?;
        let ice = IceMode::Lite { config: Arc::default(), addresses: vec![local] };
        Some(Self {
            config: Arc::new(Config::new(ice, Arc::new(identity))),
            seed,
            anchor: NtpAnchor::new(now, unix),
            local,
            demux: Demux::new(),
            peers: BTreeMap::new(),
            ids: 0,
            touched: BTreeSet::new(),
            events: Events::new(),
            overflown: BTreeSet::new(),
            shown: (Bytes::new(), String::new()),
            out: Datagrams::new(),
            next: None,
        })
    }

    fn offer(&mut self, now: Instant, offer: &[u8]) -> Option<u64> {
        let offer = Description::read(offer).ok()?;
        self.ids += 1;
        let id = self.ids;
        let seed = self.seed.derive("session", id);
        let mut peer = Peer::new(now, Arc::clone(&self.config), self.anchor, seed).ok()?;
        let answer = peer.handle_offer(now, &offer, |_, media| take(media)).ok()?;
        self.demux.insert(peer.local_fragment(), id);
        self.peers.insert(id, peer);
        self.shown.1 = answer.write();
        self.touch(now, id);
        Some(id)
    }

    fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let path = Path::udp(self.local, from);
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        let Some(buffer) = buffer.get_mut(..datagram.len()) else { return };
        buffer.copy_from_slice(datagram);
        if let Route::Stun(id) | Route::Dtls(id) | Route::Rtp(id) = self.demux.route(&path, buffer)
            && let Some(peer) = self.peers.get_mut(&id)
        {
            peer.handle_datagram(now, path, buffer);
            self.touch(now, id);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let is_due = |(_, peer): &(&u64, &Peer)| peer.poll_timeout().is_some_and(|at| at <= now);
        let due: Vec<u64> = self.peers.iter().filter(is_due).map(|(id, _)| *id).collect();
        for id in due {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.handle_timeout(now);
            }
            self.touch(now, id);
        }
    }

    /// Takes the events of a session.
    fn touch(&mut self, now: Instant, session: u64) {
        let Some(peer) = self.peers.get_mut(&session) else { return };
        while let Some(event) = peer.poll_event() {
            let other = |kind| Owned {
                kind,
                session,
                codec: MillstreamCodec::Other,
                timestamp: 0,
                key_frame: false,
                data: Bytes::new(),
            };
            let owned = match event {
                Event::PathOpened(path) => {
                    self.demux.open(path, session);
                    continue;
                }
                Event::PathClosed(path) => {
                    self.demux.close(&path, session);
                    continue;
                }
                Event::Connected => other(MillstreamWhipEventKind::Connected),
                Event::Closed(_) => {
                    self.overflown.remove(&session);
                    self.events.push_last(session, other(MillstreamWhipEventKind::Closed));
                    continue;
                }
                Event::Frame { section, layer: 0, frame, .. } => {
                    let codec = codec(peer, section);
                    let data = match codec {
                        MillstreamCodec::H264 | MillstreamCodec::H265 => nal::to_annex_b(&frame.payload),
                        _ => Ok(frame.payload),
                    };
                    let (timestamp, key_frame) = (frame.timestamp, frame.key_frame);
                    let kind = MillstreamWhipEventKind::Frame;
                    data.map_or_else(
                        |_| Owned { codec, ..other(MillstreamWhipEventKind::Lost) },
                        |data| Owned { kind, session, codec, timestamp, key_frame, data },
                    )
                }
                Event::PictureLost { section, layer: 0 } => {
                    Owned { codec: codec(peer, section), ..other(MillstreamWhipEventKind::Lost) }
                }
                // The port sends no video, opens no channels, and takes the first layer alone.
                _ => continue,
            };
            if self.overflown.contains(&session) || self.events.push(session, owned.data.len(), owned) {
                continue;
            }
            self.overflown.insert(session);
            self.events.push_last(session, other(MillstreamWhipEventKind::Overflow));
            peer.close(now);
        }
        self.touched.insert(session);
    }

    fn request_key_frame(&mut self, now: Instant, session: u64) -> MillstreamResult {
        let Some(peer) = self.peers.get_mut(&session) else { return MillstreamResult::State };
        let sections: Vec<SectionId> = peer.sections().iter().map(|section| section.id).collect();
        let asked = sections.into_iter().filter(|section| peer.request_key_frame(now, *section, 0)).count();
        self.touch(now, session);
        if asked > 0 { MillstreamResult::Ok } else { MillstreamResult::State }
    }

    fn close(&mut self, now: Instant, session: u64) -> MillstreamResult {
        let Some(peer) = self.peers.get_mut(&session) else { return MillstreamResult::State };
        peer.close(now);
        self.touch(now, session);
        MillstreamResult::Ok
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(SocketAddr, &[u8])> {
        loop {
            if let Some((index, to)) = self.next {
                if index < self.out.len() {
                    self.next = Some((index + 1, to));
                    return Some((to, self.out.get(index)));
                }
                self.next = None;
                self.out.clear();
            }
            let id = *self.touched.first()?;
            let path =
                self.peers.get_mut(&id).and_then(|peer| peer.poll_transmit(now, |_| None, &mut self.out));
            if let Some(path) = path {
                self.next = Some((0, path.remote));
                continue;
            }
            self.touched.remove(&id);
            if self.is_over(id) {
                self.demux.remove(id);
                self.peers.remove(&id);
            }
        }
    }

    /// True once the last event of a session was queued and its last datagram sent.
    fn is_over(&self, id: u64) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.poll_timeout().is_none())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.peers.values().filter_map(Peer::poll_timeout).min()
    }
}

fn codec(peer: &Peer, section: SectionId) -> MillstreamCodec {
    let mut sections = peer.sections().iter();
    let format = sections.find(|one| one.id == section).and_then(|section| section.formats.first());
    match format.and_then(|format| codec_of_description(&format.remote)) {
        Some(Codec::H264) => MillstreamCodec::H264,
        Some(Codec::H265) => MillstreamCodec::H265,
        Some(Codec::Vp8) => MillstreamCodec::Vp8,
        Some(Codec::Vp9) => MillstreamCodec::Vp9,
        Some(Codec::Av1) => MillstreamCodec::Av1,
        Some(Codec::Opus) => MillstreamCodec::Opus,
        _ => MillstreamCodec::Other,
    }
}

/// Makes a port whose socket has the address `local`, which answers name. `unix_us` is the time of day in microseconds
/// since 1970.
///
/// # Safety
/// `local` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_whip_new(
    now_us: u64,
    unix_us: u64,
    local: *const MillstreamAddress,
) -> *mut MillstreamWhip {
    // SAFETY: the caller guarantees the pointer if it is not null.
    let Some(local) = (unsafe { local.as_ref() }).and_then(MillstreamAddress::get) else {
        return std::ptr::null_mut();
    };
    let made = Guarded::new(now_us, |now| Port::new(now, Duration::from_micros(unix_us), local));
    made.map_or(std::ptr::null_mut(), |made| Box::into_raw(made).cast())
}

/// Frees a port and its sessions, without a word to their peers.
///
/// # Safety
/// `whip` is NULL, or a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_whip_free(whip: *mut MillstreamWhip) {
    // SAFETY: the handle came from `Box::into_raw` in `new`, and is freed once.
    unsafe { guard::free(whip.cast::<Guarded<Port>>()) }
}

/// Handles an offer, the body of a request of WHIP: writes the id of a new session to `session`, and the answer, which belongs to the
/// handle, to `answer` and `answer_length`. An offer that is refused is `ARGUMENT`; `FULL` means
/// that the events of the port were not taken.
///
/// # Safety
/// `whip` is NULL or valid; `length` bytes can be read at `offer`, or it is NULL; the other pointers are NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_whip_offer(
    whip: *mut MillstreamWhip,
    now_us: u64,
    offer: *const u8,
    length: usize,
    session: *mut u64,
    answer: *mut *const u8,
    answer_length: *mut usize,
) -> MillstreamResult {
    // SAFETY: the caller guarantees each pointer that is not null.
    unsafe {
        let (Some(offer), Some(session)) = (bytes(offer, length), session.as_mut()) else {
            return MillstreamResult::Null;
        };
        let (Some(answer), Some(answer_length)) = (answer.as_mut(), answer_length.as_mut()) else {
            return MillstreamResult::Null;
        };
        call(whip.cast::<Guarded<Port>>(), now_us, |port, now| {
            if port.events.is_full() {
                return MillstreamResult::Full;
            }
            let Some(id) = port.offer(now, offer) else { return MillstreamResult::Argument };
            *session = id;
            (*answer, *answer_length) = (port.shown.1.as_ptr(), port.shown.1.len());
            MillstreamResult::Ok
        })
    }
}

/// Handles a datagram from `from`.
///
/// # Safety
/// `whip` is NULL or valid; `from` is NULL or valid; `length` bytes can be read at `data`, or it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_whip_handle_datagram(
    whip: *mut MillstreamWhip,
    now_us: u64,
    from: *const MillstreamAddress,
    data: *const u8,
    length: usize,
) -> MillstreamResult {
    // SAFETY: the caller guarantees each pointer that is not null.
    unsafe {
        let (Some(from), Some(datagram)) = (from.as_ref(), bytes(data, length)) else {
            return MillstreamResult::Null;
        };
        let Some(from) = from.get() else { return MillstreamResult::Argument };
        call(whip.cast::<Guarded<Port>>(), now_us, |port, now| {
            port.handle_datagram(now, from, datagram);
            MillstreamResult::Ok
        })
    }
}

/// Handles the deadlines that have passed.
///
/// # Safety
/// `whip` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_whip_handle_timeout(
    whip: *mut MillstreamWhip,
    now_us: u64,
) -> MillstreamResult {
    // SAFETY: the caller guarantees the handle.
    unsafe {
        call(whip.cast::<Guarded<Port>>(), now_us, |port, now| {
            port.handle_timeout(now);
            MillstreamResult::Ok
        })
    }
}

/// Requests a key frame of a session's video, as for the beginning of a file. Requests are sent at most twice a second. A session
/// without video is `STATE`.
///
/// # Safety
/// `whip` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_whip_request_key_frame(
    whip: *mut MillstreamWhip,
    now_us: u64,
    session: u64,
) -> MillstreamResult {
    // SAFETY: the caller guarantees the handle.
    unsafe { call(whip.cast::<Guarded<Port>>(), now_us, |port, now| port.request_key_frame(now, session)) }
}

/// Closes a session. Its last event is `CLOSED`.
///
/// # Safety
/// `whip` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_whip_close(
    whip: *mut MillstreamWhip,
    now_us: u64,
    session: u64,
) -> MillstreamResult {
    // SAFETY: the caller guarantees the handle.
    unsafe { call(whip.cast::<Guarded<Port>>(), now_us, |port, now| port.close(now, session)) }
}

/// Writes the next event to `event`, or returns `NOTHING`.
///
/// # Safety
/// `whip` is NULL or valid; `event` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_whip_poll_event(
    whip: *mut MillstreamWhip,
    event: *mut MillstreamWhipEvent,
) -> MillstreamResult {
    if event.is_null() {
        return MillstreamResult::Null;
    }
    // SAFETY: the caller guarantees the handle, and that the event can be written.
    unsafe {
        call(whip.cast::<Guarded<Port>>(), 0, |port, _| {
            let Some(owned) = port.events.pop() else { return MillstreamResult::Nothing };
            port.shown.0 = owned.data;
            event.write(MillstreamWhipEvent {
                kind: owned.kind,
                session: owned.session,
                codec: owned.codec,
                timestamp: owned.timestamp,
                key_frame: owned.key_frame,
                data: port.shown.0.as_ptr(),
                length: port.shown.0.len(),
            });
            MillstreamResult::Ok
        })
    }
}

/// Writes the next datagram to `datagram`, or returns `NOTHING`.
///
/// # Safety
/// `whip` is NULL or valid; `datagram` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_whip_poll_transmit(
    whip: *mut MillstreamWhip,
    now_us: u64,
    datagram: *mut MillstreamDatagram,
) -> MillstreamResult {
    if datagram.is_null() {
        return MillstreamResult::Null;
    }
    // SAFETY: the caller guarantees the handle, and that the datagram can be written.
    unsafe {
        call(whip.cast::<Guarded<Port>>(), now_us, |port, now| {
            let Some((to, data)) = port.poll_transmit(now) else { return MillstreamResult::Nothing };
            datagram.write(MillstreamDatagram { to: to.into(), data: data.as_ptr(), length: data.len() });
            MillstreamResult::Ok
        })
    }
}

/// Returns the next deadline, or `UINT64_MAX` if there is none.
///
/// # Safety
/// `whip` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millstream_whip_poll_timeout(whip: *mut MillstreamWhip) -> u64 {
    // SAFETY: the caller guarantees the handle.
    unsafe { guard::deadline(whip.cast::<Guarded<Port>>(), |port| port.poll_timeout()) }
}
