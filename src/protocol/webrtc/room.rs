//! A viewer of a main track: one peer that is sent the tracks of all its streams.
//!
//! Each stream is a subscription with a [`Viewer`] of its own, and has a place for each kind of track: a section of our offers. The first
//! place carries nothing but the transport, so that an empty room connects, and so that whoever leaves does not take the transport
//! along. Streams come and go; then there is another offer, one at a time. A place that was given up is withdrawn first, so that
//! the page's track ends, and is given to another stream by a later offer.
//!
//! A viewer that has fewer places than streams ([`Limits`]) has seats ([`seating`]): they are offered once, for any codec, and carry
//! one stream after the other, by who speaks ([`seated`]). Only streams with a seat are subscribed to.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use ::webrtc::{MediaPreference, Peer, SectionId};
use media::{Track, TrackId, TrackKind, Tracks};
use sdp::{Direction, Format, MediaKind, PayloadType};
use smallvec::SmallVec;

use self::assignments::Loud;
use self::seated::Seats;
use super::codecs::Codecs;
use super::info::{Bitrates, TrackInfo};
use super::negotiation;
use super::viewer::Viewer;
use crate::types::Handle;

mod assignments;
mod seated;
mod seating;
#[cfg(test)]
mod tests;

pub(super) use self::seated::{Limits, Step};
pub(super) use self::seating::SEATS_MAX;

/// Streams of a main track that a viewer is sent at once.
pub(super) const STREAMS_MAX: usize = 50;
/// Streams of a main track that a viewer with seats alone chooses from.
const CANDIDATES_MAX: usize = 1000;
/// Forms that a track is offered in: of H.264 its own profile, and those that every browser knows.
const FORMS_MAX: usize = 3;
/// Payload types of forms; those above are for what repeats them.
const PAYLOAD_TYPES: std::ops::RangeInclusive<u8> = 96..=111;
/// The level of a stream that does not speak, or whose loudness nobody knows.
const SILENCE: u8 = 127;

/// The streams of a main track that a viewer wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// The streams that are wanted alone, where there are any.
    pub(super) only: Vec<String>,
    /// The streams that are not wanted.
    pub(super) without: Vec<String>,
    /// Whether nothing is sent of a stream before the viewer wants it.
    pub(super) is_off: bool,
}

impl Choice {
    fn takes(&self, id: &str) -> bool {
        let listed = |list: &[String]| list.iter().any(|one| one == id);
        !listed(&self.without) && (self.only.is_empty() || listed(&self.only))
    }
}

/// The use of a place.
#[derive(Debug)]
enum Holder {
    /// The transport alone.
    Transport,
    /// Data channels.
    Data,
    /// A track of the stream of this subscription, in the forms that were offered.
    Track(Handle, MediaPreference),
    /// A seat: whoever has it now, in the forms that were offered.
    Seat(TrackKind, usize, MediaPreference),
    /// Given up, which the peer does not know.
    GivenUp,
    /// Withdrawn by the offer that is open.
    Withdrawn,
    /// To be taken.
    Free,
}

/// A section of our offers.
#[derive(Debug)]
struct Place {
    kind: MediaKind,
    holder: Holder,
}

/// The state of the subscription to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subscribed {
    /// None: the stream has no seat.
    No,
    /// The verdict is still to come.
    Asked,
    Yes,
}

/// A stream of the main track.
#[derive(Debug)]
struct Member {
    id: Arc<str>,
    state: Subscribed,
    tracks: Arc<Tracks>,
    viewer: Option<Box<Viewer>>,
    /// Whether video and audio are wanted.
    wants: (bool, bool),
    /// Whether it is known to have no video, and no audio.
    lacks: (bool, bool),
    /// Time of its last speech, and its loudness.
    spoke: Option<Instant>,
    level: u8,
}

impl Member {
    /// Whether it may have a seat of a kind.
    fn takes_seat(&self, kind: TrackKind) -> bool {
        let of = |(video, audio)| if kind == TrackKind::Video { video } else { audio };
        of(self.wants) && !of(self.lacks)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Room {
    choice: Choice,
    members: BTreeMap<Handle, Member>,
    ids: BTreeMap<Arc<str>, Handle>,
    places: Vec<Place>,
    numbers: Numbers,
    seats: Seats,
    loud: Loud,
    /// The videos that the page has heard of last.
    said: String,
    /// The streams whose video is sent, by their places in the order in which they came.
    window: Range<usize>,
    /// An offer waits for its answer.
    is_open: bool,
    /// The last offer does not say what there is.
    is_stale: bool,
    last: Handle,
}

impl Room {
    /// `has_data`: whether it is offered data channels, too.
    pub(super) fn new(choice: Choice, has_data: bool, limits: Limits, codecs: Codecs) -> Self {
        let transport = Place { kind: MediaKind::Audio, holder: Holder::Transport };
        let data = has_data.then_some(Place { kind: MediaKind::Application, holder: Holder::Data });
        let mut room = Self {
            choice,
            members: BTreeMap::new(),
            ids: BTreeMap::new(),
            places: std::iter::once(transport).chain(data).collect(),
            numbers: Numbers::default(),
            seats: Seats::new(limits, codecs),
            loud: Loud::default(),
            said: String::new(),
            window: 0..STREAMS_MAX,
            is_open: false,
            is_stale: true,
            last: Handle::ONLY,
        };
        room.offer_seats();
        room
    }

    /// A stream is there: the handle to subscribe to it under, if it is wanted and there is room.
    pub(super) fn came(&mut self, id: &Arc<str>) -> Option<Handle> {
        let most = if self.seats.are_all() { CANDIDATES_MAX } else { STREAMS_MAX };
        if self.ids.contains_key(id) || !self.choice.takes(id) || self.members.len() >= most {
            return None;
        }
        let is_free = |handle: &Handle| !self.members.contains_key(handle) && *handle != Handle::ONLY;
        let mut handles = (1..=u16::MAX).map(|n| Handle(self.last.0.wrapping_add(n)));
        let handle = handles.find(is_free)?;
        self.last = handle;
        let member = Member {
            id: Arc::clone(id),
            state: Subscribed::No,
            tracks: Arc::default(),
            viewer: None,
            wants: (!self.choice.is_off, !self.choice.is_off),
            lacks: (false, false),
            spoke: None,
            level: SILENCE,
        };
        self.members.insert(handle, member);
        self.ids.insert(Arc::clone(id), handle);
        self.fill_seats();
        let is_due = self.seats.needs(handle);
        let member = self.members.get_mut(&handle).filter(|_| is_due)?;
        member.state = Subscribed::Asked;
        Some(handle)
    }

    /// The subscription of a stream that left, if there is one.
    pub(super) fn left(&mut self, id: &str) -> Option<Handle> {
        let handle = *self.ids.get(id)?;
        let member = self.take_out(handle)?;
        (member.state != Subscribed::No).then_some(handle)
    }

    /// A stream is not sent any more.
    pub(super) fn remove(&mut self, handle: Handle) {
        self.take_out(handle);
    }

    fn take_out(&mut self, handle: Handle) -> Option<Member> {
        let member = self.members.remove(&handle)?;
        self.ids.remove(&member.id);
        self.loud.forget(handle);
        self.leave_seats(handle);
        self.give_up(handle);
        Some(member)
    }

    fn give_up(&mut self, handle: Handle) {
        for place in &mut self.places {
            if matches!(place.holder, Holder::Track(of, _) if of == handle) {
                (place.holder, self.is_stale) = (Holder::GivenUp, true);
            }
        }
    }

    /// Whether streams come and go without an offer.
    pub(super) const fn has_seats_alone(&self) -> bool {
        self.seats.are_all()
    }

    /// Whether it is sent a stream, or may be.
    pub(super) fn has(&self, id: &str) -> bool {
        self.ids.contains_key(id)
    }

    /// Notes the tracks of a stream, as far as the application has their codecs. A kind of track without a place is given one.
    pub(super) fn take_tracks(&mut self, handle: Handle, tracks: &Tracks, codecs: Codecs) {
        let Some(member) = self.members.get_mut(&handle) else { return };
        member.state = Subscribed::Yes;
        member.tracks = Arc::new(codecs.of(tracks));
        let (id, tracks) = (Arc::clone(&member.id), Arc::clone(&member.tracks));
        let lacks = |kind| !tracks.is_empty() && negotiation::default_of(&tracks, kind).is_none();
        member.lacks = (lacks(TrackKind::Video), lacks(TrackKind::Audio));
        self.seats.note(handle);
        for (kind, section) in [(TrackKind::Audio, MediaKind::Audio), (TrackKind::Video, MediaKind::Video)] {
            if self.seats.have_places(kind) {
                self.keep_seat_if_used(handle, kind);
                continue;
            }
            let has_place = |place: &Place| {
                place.kind == section && matches!(place.holder, Holder::Track(of, _) if of == handle)
            };
            if self.places.iter().any(has_place) {
                continue;
            }
            if let Some(track) = negotiation::default_of(&tracks, kind)
                && let Some(preference) = self.preference(track, &id)
            {
                self.take_place(section, Holder::Track(handle, preference));
            }
        }
    }

    fn preference(&mut self, track: &Track, id: &str) -> Option<MediaPreference> {
        let mut formats = negotiation::formats_of_track(track);
        formats.truncate(FORMS_MAX);
        self.preference_of(track.kind(), id, formats)
    }

    fn preference_of(
        &mut self,
        kind: TrackKind,
        id: &str,
        mut formats: Vec<Format>,
    ) -> Option<MediaPreference> {
        formats.retain_mut(|format| self.numbers.give(format));
        let msid = Some(negotiation::name_of(kind, id));
        let preference = MediaPreference { direction: Direction::SendOnly, formats, msid };
        (!preference.formats.is_empty()).then_some(preference)
    }

    fn take_place(&mut self, kind: MediaKind, holder: Holder) {
        let is_free = |place: &&mut Place| place.kind == kind && matches!(place.holder, Holder::Free);
        if let Some(place) = self.places.iter_mut().find(is_free) {
            place.holder = holder;
        } else if self.places.len() < ::webrtc::OFFERED_SECTIONS_MAX {
            self.places.push(Place { kind, holder });
        } else {
            return;
        }
        self.is_stale = true;
    }

    /// The codec of a track is another one now: its stream begins anew, at other places, or in its seats.
    pub(super) fn begin_anew(&mut self, handle: Handle, tracks: &Tracks, codecs: Codecs) {
        self.give_up(handle);
        self.vacate_seats(handle);
        if let Some(member) = self.members.get_mut(&handle) {
            member.viewer = None;
        }
        self.take_tracks(handle, tracks, codecs);
    }

    // ---- offers

    /// Whether an offer waits for its answer.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// The sections of the next offer: when the last one does not say what there is, and is answered.
    pub(super) fn poll_offer(&mut self) -> Option<Vec<(MediaKind, MediaPreference)>> {
        let is_settled = self.members.values().all(|member| member.state != Subscribed::Asked);
        if !self.is_stale || self.is_open || !is_settled {
            return None;
        }
        (self.is_stale, self.is_open) = (false, true);
        let (places, numbers) = (&mut self.places, &mut self.numbers);
        Some(places.iter_mut().map(|place| (place.kind.clone(), place.offer(numbers))).collect())
    }

    /// The offer was answered: the streams that begin now, or go on by other sections.
    pub(super) fn answered(&mut self, now: Instant, peer: &mut Peer) -> Vec<Handle> {
        self.is_open = false;
        for place in self.places.iter_mut().filter(|place| matches!(place.holder, Holder::Withdrawn)) {
            place.holder = Holder::Free;
        }
        let handles: Vec<Handle> = self.members.keys().copied().collect();
        let began = handles.into_iter().filter(|handle| self.settle(now, peer, *handle)).collect();
        self.apply_wants();
        began
    }

    /// Gives a stream the sections that are its own now. False: it goes on as it did.
    fn settle(&mut self, now: Instant, peer: &mut Peer, handle: Handle) -> bool {
        let is_own = |place: &Place| match &place.holder {
            Holder::Track(of, _) => *of == handle,
            Holder::Seat(kind, seat, _) => self.seats.holder(*kind, *seat) == Some(handle),
            Holder::Transport | Holder::Data | Holder::GivenUp | Holder::Withdrawn | Holder::Free => false,
        };
        let is_agreed = |id: &SectionId| peer.sections().iter().any(|section| section.id == *id);
        let own = (0..).map(SectionId).zip(&self.places).filter(|(_, place)| is_own(place)).map(|(id, _)| id);
        let own: SmallVec<[SectionId; 2]> = own.filter(is_agreed).collect();
        let are_seats = self.seats.are_any();
        let Some(member) = self.members.get_mut(&handle) else { return false };
        if own.is_empty() || member.tracks.is_empty() {
            return false;
        }
        match &mut member.viewer {
            Some(viewer) => viewer.take_sections(now, peer, &member.tracks, own),
            None => {
                let viewer = Viewer::of_sections(now, peer, &member.tracks, own, are_seats);
                member.viewer = Some(Box::new(viewer));
                true
            }
        }
    }

    // ---- streams that are sent

    /// The viewer of a stream, and the number of streams that share the path.
    pub(super) fn viewer(&mut self, handle: Handle) -> Option<(&mut Viewer, usize)> {
        let shares = self.shares();
        let viewer = self.members.get_mut(&handle)?.viewer.as_deref_mut()?;
        Some((viewer, shares))
    }

    /// Streams with video that are sent.
    fn shares(&self) -> usize {
        let viewers = self.members.values().filter_map(|member| member.viewer.as_ref());
        viewers.filter(|viewer| viewer.video().is_some()).count().max(1)
    }

    /// The viewers of all streams that are sent, under their handles.
    pub(super) fn viewers(&mut self) -> impl Iterator<Item = (Handle, &mut Viewer)> {
        let members = self.members.iter_mut();
        members.filter_map(|(handle, member)| Some((*handle, member.viewer.as_deref_mut()?)))
    }

    /// The subscription and the track that a section carries.
    pub(super) fn carries(&self, section: SectionId) -> Option<(Handle, TrackId)> {
        let handle = match self.places.get(usize::from(section.0))?.holder {
            Holder::Track(handle, _) => handle,
            Holder::Seat(kind, seat, _) => self.seats.holder(kind, seat)?,
            Holder::Transport | Holder::Data | Holder::GivenUp | Holder::Withdrawn | Holder::Free => {
                return None;
            }
        };
        Some((handle, self.members.get(&handle)?.viewer.as_ref()?.track_of(section)?))
    }

    /// Whether the tracks of a stream are others than were known.
    pub(super) fn has_other_tracks(&self, handle: Handle, tracks: &Tracks) -> bool {
        self.members.get(&handle).is_some_and(|member| member.tracks.epoch != tracks.epoch)
    }

    /// The kinds of tracks that are wanted of a stream from now on, by its id or the name of one of its tracks; `None`: as before. Its
    /// subscription, if it is sent.
    pub(super) fn want(&mut self, name: &str, video: Option<bool>, audio: Option<bool>) -> Option<Handle> {
        let handle = *self.ids.get(negotiation::stream_of_track(name))?;
        let member = self.members.get_mut(&handle)?;
        let (was_video, was_audio) = member.wants;
        member.wants = (video.unwrap_or(was_video), audio.unwrap_or(was_audio));
        for kind in [TrackKind::Video, TrackKind::Audio] {
            self.keep_seat_if_used(handle, kind);
        }
        self.apply_wants();
        self.viewer(handle).map(|_| handle)
    }

    /// Has the video of so many streams sent, from that one on: pages that show a part of a large room turn it over. Where there are seats
    /// for videos, those streams have them until the page wants others.
    pub(super) fn turn_over(&mut self, window: Range<usize>) {
        if self.seats.has(TrackKind::Video) {
            self.pin_window(window);
        } else {
            self.window = window;
        }
        self.apply_wants();
    }

    /// Has each viewer want what is wanted of its stream, and its video only within the window.
    fn apply_wants(&mut self) {
        for (at, (handle, member)) in self.members.iter_mut().enumerate() {
            let (video, audio) = member.wants;
            let is_shown =
                self.seats.seats(TrackKind::Video, *handle).unwrap_or_else(|| self.window.contains(&at));
            let is_heard = self.seats.seats(TrackKind::Audio, *handle).unwrap_or(true);
            if let Some(viewer) = &mut member.viewer {
                viewer.want(video && is_shown, audio && is_heard);
            }
        }
    }

    /// The tracks of all streams that are sent.
    pub(super) fn info(&self) -> Vec<TrackInfo> {
        let viewers = self.members.values().filter_map(|member| member.viewer.as_ref());
        viewers.flat_map(|viewer| viewer.info()).collect()
    }

    /// Pictures that the path had no room for.
    pub(super) fn left_out(&self) -> u64 {
        let viewers = self.members.values().filter_map(|member| member.viewer.as_ref());
        viewers.map(|viewer| viewer.left_out()).sum()
    }

    /// The rates of all streams, when they are due.
    pub(super) fn poll_bitrates(&mut self, now: Instant, peer: &Peer) -> Option<Bitrates> {
        let rates: Vec<Bitrates> =
            self.viewers().filter_map(|(_, viewer)| viewer.poll_bitrates(now, peer)).collect();
        let target = rates.first()?.target;
        let sum = |of: fn(&Bitrates) -> u64| rates.iter().map(of).sum();
        Some(Bitrates { target, video: sum(|rates| rates.video), audio: sum(|rates| rates.audio) })
    }

    /// The time of the next look at the path, or of the next list of speakers.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let viewers = self.members.values().filter_map(|member| member.viewer.as_ref());
        viewers.filter_map(|viewer| viewer.poll_timeout()).chain(self.loud.poll_timeout()).min()
    }
}

impl Place {
    /// The section as it is offered now.
    fn offer(&mut self, numbers: &mut Numbers) -> MediaPreference {
        let nothing = MediaPreference { direction: Direction::SendOnly, formats: Vec::new(), msid: None };
        match &self.holder {
            Holder::Transport => {
                let mut formats =
                    ::webrtc::offered_formats(media::codec::Codec::Opus, *PAYLOAD_TYPES.start());
                formats.retain_mut(|format| numbers.give(format));
                MediaPreference { direction: Direction::Inactive, formats, msid: None }
            }
            Holder::Track(_, preference) | Holder::Seat(_, _, preference) => preference.clone(),
            Holder::GivenUp => {
                self.holder = Holder::Withdrawn;
                nothing
            }
            Holder::Data | Holder::Withdrawn | Holder::Free => nothing,
        }
    }
}

/// The payload types of forms: the same in all sections, for the life of the peer (RFC 9143 §9.1).
#[derive(Debug, Default)]
struct Numbers(Vec<(String, PayloadType)>);

impl Numbers {
    /// Gives a form its number. False when none is left.
    fn give(&mut self, format: &mut Format) -> bool {
        if !PAYLOAD_TYPES.contains(&format.payload_type().number()) {
            // A fixed one.
            return true;
        }
        let map = &format.rtpmap;
        let name = format!("{}/{}/{:?} {}", map.encoding, map.clock_rate, map.channels, format.parameters);
        let known = self.0.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
        let number = known.or_else(|| {
            let is_free = |number: &PayloadType| self.0.iter().all(|(_, taken)| taken != number);
            let number = PAYLOAD_TYPES.filter_map(PayloadType::new).find(is_free)?;
            self.0.push((name, number));
            Some(number)
        });
        if let Some(number) = number {
            format.rtpmap.payload_type = number;
        }
        number.is_some()
    }
}
