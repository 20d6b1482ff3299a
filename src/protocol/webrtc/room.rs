//! A viewer of a main track: one peer that is sent the tracks of all its streams.
//!
//! Each stream is a subscription with a [`Viewer`] of its own, and has a place for its video and one for its audio. A
//! place is a media section of our offers. The first place carries only the transport, so that an empty room can
//! connect, and the transport stays when a stream leaves. When streams join or leave, another offer is made, one at a
//! time. If a stream leaves, the next offer withdraws its places, so that the page's tracks end; a later offer reuses
//! the places for another stream.
//!
//! A viewer that has fewer places than streams ([`Limits`]) has seats ([`seating`]): these are offered once, for any
//! codec, and carry one stream after another, depending on who speaks ([`seated`]). Only streams with a seat are
//! subscribed to.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use ::webrtc::{MediaPreference, Peer, Section, SectionId};
use media::{Track, TrackId, TrackKind, Tracks};
use sdp::{Direction, Format, MediaKind, PayloadType};
use smallvec::SmallVec;

use self::assignments::Loud;
use self::seated::Seats;
use super::codecs::Codecs;
use super::info::{Bitrates, TrackInfo};
use super::negotiation;
use super::pace::Pace;
use super::viewer::Viewer;
use crate::auth::access::is_stream_id;
use crate::types::Handle;

mod assignments;
mod seated;
mod seating;
#[cfg(test)]
mod tests;

pub(super) use self::seated::{Limits, Step};
pub(super) use self::seating::SEATS_MAX;

/// Maximum number of streams of a main track sent to a viewer at the same time.
pub(super) const STREAMS_MAX: usize = 50;
/// Maximum number of streams that wait until one of the others leaves.
const WAITING_MAX: usize = 1000;
/// Maximum number of streams that take turns on the seats of a viewer that has only seats.
const CANDIDATES_MAX: usize = 1000;
/// Maximum number of forms in which a track is offered: for H.264, its own profile and the profiles that every
/// browser supports.
const FORMS_MAX: usize = 3;
/// Payload types of forms; higher ones are used for their retransmission.
const PAYLOAD_TYPES: std::ops::RangeInclusive<u8> = 96..=111;
/// The audio level of a stream that is silent or whose loudness is unknown (RFC 6464 §3; 0 is the loudest).
const SILENCE: u8 = 127;

/// The streams of a main track that a viewer wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// The only streams that the viewer wants; empty for all.
    pub(super) only: Vec<String>,
    /// Streams that the viewer does not want.
    pub(super) without: Vec<String>,
    /// True if nothing is sent of a stream until the viewer asks for it.
    pub(super) is_off: bool,
    /// The kinds, video and audio, that the viewer wants of streams that are not sent yet.
    pub(super) wants: BTreeMap<String, (Option<bool>, Option<bool>)>,
}

impl Choice {
    fn takes(&self, id: &str) -> bool {
        let listed = |list: &[String]| list.iter().any(|one| one == id);
        !listed(&self.without) && (self.only.is_empty() || listed(&self.only))
    }

    /// Notes the kinds that the viewer wants of a stream that is not sent yet; `None` leaves a kind unchanged.
    pub(super) fn want(&mut self, id: &str, video: Option<bool>, audio: Option<bool>) {
        let has_room = self.wants.len() < STREAMS_MAX || self.wants.contains_key(id);
        if has_room && is_stream_id(id) {
            let wants = self.wants.entry(id.to_owned()).or_default();
            *wants = (video.or(wants.0), audio.or(wants.1));
        }
    }

    /// Returns the kinds that the viewer wants of a stream that begins, in place of `usual` ones.
    pub(super) fn take_wants(&mut self, id: &str, usual: (bool, bool)) -> (bool, bool) {
        let (video, audio) = self.wants.remove(id).unwrap_or_default();
        (video.unwrap_or(usual.0), audio.unwrap_or(usual.1))
    }
}

/// The first offer to a client, kept while the client may still become a viewer of the whole main track: the room
/// then keeps the offer's sections and payload types.
#[derive(Debug, Default)]
pub(super) struct FirstOffer {
    /// The choice of the client.
    pub(super) choice: Choice,
    kinds: Vec<MediaKind>,
    numbers: Numbers,
}

impl FirstOffer {
    /// Creates the state before the offer is made.
    pub(super) fn new(choice: Choice) -> Self {
        Self { choice, ..Self::default() }
    }

    /// Stores the kinds and payload types of the offered sections; the section of data channels is not one of them.
    pub(super) fn note(&mut self, sections: &[(MediaKind, MediaPreference)]) {
        self.kinds = sections.iter().map(|(kind, _)| kind.clone()).collect();
        let formats = sections.iter().flat_map(|(_, preference)| &preference.formats);
        formats.for_each(|format| self.numbers.keep(format));
    }
}

/// The use of a place.
#[derive(Debug)]
enum Holder {
    /// The place carries only the transport.
    Transport,
    /// The place carries data channels.
    Data,
    /// A track of this subscription's stream, in the offered forms.
    Track(Handle, MediaPreference),
    /// The same, of the stream that was played before there were seats. It is sent until the seats are agreed on.
    Former(Handle, MediaPreference),
    /// A seat of this kind and number, in the offered forms. [`Seats`] tells which stream has it.
    Seat(TrackKind, usize, MediaPreference),
    /// The place carried a track, and now carries only the transport.
    Idle(MediaPreference),
    /// The track was given up, but the section is not yet withdrawn from the peer.
    GivenUp,
    /// The pending offer withdraws the section.
    Withdrawn,
    /// The section can be reused for another track.
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
    /// Not subscribed, because the stream has no seat.
    No,
    /// Subscribed; the worker has not decided yet whether the viewer may play the stream.
    Asked,
    /// Subscribed; the worker waits for the stream, for example for a copy of another node's stream.
    Held,
    Yes,
}

/// A stream of the main track.
#[derive(Debug)]
struct Member {
    id: Arc<str>,
    state: Subscribed,
    tracks: Arc<Tracks>,
    viewer: Option<Box<Viewer>>,
    /// Two flags, for video and for audio: true if the viewer wants the kind.
    wants: (bool, bool),
    /// Two flags, for video and for audio: true if the stream is known to lack the kind.
    lacks: (bool, bool),
    /// The last time at which the stream spoke.
    spoke: Option<Instant>,
    level: u8,
}

impl Member {
    /// True if the stream may have a seat of this kind.
    fn takes_seat(&self, kind: TrackKind) -> bool {
        let of = |(video, audio)| if kind == TrackKind::Video { video } else { audio };
        of(self.wants) && !of(self.lacks)
    }
}

/// The state of a viewer of a main track.
#[derive(Debug)]
pub(super) struct Room {
    choice: Choice,
    members: BTreeMap<Handle, Member>,
    ids: BTreeMap<Arc<str>, Handle>,
    /// Streams that there was no room for, in their order of arrival.
    waiting: VecDeque<Arc<str>>,
    places: Vec<Place>,
    /// The index of the place whose section carries the transport.
    transport: usize,
    numbers: Numbers,
    seats: Seats,
    loud: Loud,
    /// The list of videos last sent to the page.
    said: String,
    /// The range of streams whose video is sent. Streams are counted in their order of arrival.
    window: Range<usize>,
    /// True while an offer waits for its answer.
    is_open: bool,
    /// True if the last offer is out of date.
    is_stale: bool,
    /// The pace of the page's commands: while they wait, seats and offers wait with them.
    pace: Pace,
    last: Handle,
}

impl Room {
    /// Creates a room. `has_data` is true if data channels are offered too.
    pub(super) fn new(choice: Choice, has_data: bool, limits: Limits, codecs: Codecs) -> Self {
        let transport = Place { kind: MediaKind::Audio, holder: Holder::Transport };
        let data = has_data.then_some(Place { kind: MediaKind::Application, holder: Holder::Data });
        let mut room = Self {
            choice,
            members: BTreeMap::new(),
            ids: BTreeMap::new(),
            waiting: VecDeque::new(),
            places: std::iter::once(transport).chain(data).collect(),
            transport: 0,
            numbers: Numbers::default(),
            seats: Seats::new(limits, codecs),
            loud: Loud::default(),
            said: String::new(),
            window: 0..STREAMS_MAX,
            is_open: false,
            is_stale: true,
            pace: Pace::default(),
            last: Handle::ONLY,
        };
        room.offer_seats();
        room
    }

    /// Makes the room of a viewer that has so far played the main track's own stream. `offer` is the offer to that
    /// viewer, `sections` are the sections that the client accepted, and `all` is the number of offered sections,
    /// including data channels. Returns the room; and, if the viewer still wants the main track's own stream, the
    /// handle under which to subscribe to it. `None` if the client made the offer, because then we cannot make another.
    pub(super) fn of_viewer(
        mut self,
        own: &Arc<str>,
        mut viewer: Box<Viewer>,
        offer: FirstOffer,
        (sections, all): (&[Section], usize),
    ) -> Option<(Self, Option<Handle>)> {
        if all == 0 {
            return None;
        }
        let handle = self.add(own, viewer.wants());
        let takes_data = self.places.iter().any(|place| matches!(place.holder, Holder::Data));
        // Discards the places of the new room, none of which has been offered to the peer.
        (self.places, self.numbers) = (Vec::new(), offer.numbers);
        let has_seats = self.seats.are_any();
        let has_data = all > offer.kinds.len();
        let first = sections.iter().map(|section| section.id).min();
        self.transport = first.map_or(offer.kinds.len(), |id| usize::from(id.0));
        for (id, kind) in (0..).map(SectionId).zip(offer.kinds) {
            let agreed = sections.iter().find(|section| section.id == id);
            let preference = agreed.map(|section| {
                let formats = section.formats.iter().map(|format| format.local.clone()).collect();
                MediaPreference { direction: Direction::SendOnly, formats, msid: section.msid.clone() }
            });
            let holder = match (preference, handle) {
                (Some(preference), Some(handle)) if has_seats => Holder::Former(handle, preference),
                (Some(preference), Some(handle)) => Holder::Track(handle, preference),
                (Some(preference), None) if Some(id) == first => Holder::Idle(preference),
                // The client rejected the section, or no longer wants the stream.
                _ => Holder::GivenUp,
            };
            self.places.push(Place { kind, holder });
        }
        if has_data || takes_data {
            self.places.push(Place { kind: MediaKind::Application, holder: Holder::Data });
        }
        self.offer_seats();
        if let Some(member) = handle.and_then(|handle| self.members.get_mut(&handle)) {
            viewer.resubscribe();
            member.viewer = Some(viewer);
        }
        Some((self, handle))
    }

    /// Adds a stream. If the stream is wanted and there is room, returns the handle under which to subscribe to it.
    pub(super) fn came(&mut self, id: &Arc<str>) -> Option<Handle> {
        self.add(id, (!self.choice.is_off, !self.choice.is_off))
    }

    fn add(&mut self, id: &Arc<str>, wants: (bool, bool)) -> Option<Handle> {
        if self.ids.contains_key(id) || !self.choice.takes(id) {
            return None;
        }
        if self.is_full() {
            if self.waiting.len() < WAITING_MAX && !self.waiting.contains(id) {
                self.waiting.push_back(Arc::clone(id));
            }
            return None;
        }
        let is_free = |handle: &Handle| !self.members.contains_key(handle) && *handle != Handle::ONLY;
        let mut handles = (1..=u16::MAX).map(|n| Handle(self.last.0.wrapping_add(n)));
        let handle = handles.find(is_free)?;
        self.last = handle;
        let wants = self.choice.take_wants(id, wants);
        let member = Member {
            id: Arc::clone(id),
            state: Subscribed::No,
            tracks: Arc::default(),
            viewer: None,
            wants,
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

    /// True if there is no room for another stream.
    fn is_full(&self) -> bool {
        self.members.len() >= if self.seats.are_all() { CANDIDATES_MAX } else { STREAMS_MAX }
    }

    /// Adds a stream that waits, if there is room for it now. Returns the handle under which to subscribe to it.
    fn add_waiting(&mut self) -> Option<(Handle, Arc<str>)> {
        while !self.is_full() {
            let id = self.waiting.pop_front()?;
            if let Some(handle) = self.came(&id) {
                return Some((handle, id));
            }
        }
        None
    }

    /// Removes a stream that has left. Returns its subscription, if there is one.
    pub(super) fn left(&mut self, id: &str) -> Option<Handle> {
        self.waiting.retain(|waiting| **waiting != *id);
        let handle = *self.ids.get(id)?;
        let member = self.take_out(handle)?;
        (member.state != Subscribed::No).then_some(handle)
    }

    /// Removes a stream whose subscription has ended.
    pub(super) fn remove(&mut self, handle: Handle) {
        self.take_out(handle);
    }

    fn take_out(&mut self, handle: Handle) -> Option<Member> {
        let member = self.members.remove(&handle)?;
        self.ids.remove(&member.id);
        self.loud.forget(handle);
        if member.state != Subscribed::No {
            self.seats.retry();
        }
        self.leave_seats(handle);
        self.give_up(handle);
        Some(member)
    }

    fn give_up(&mut self, handle: Handle) {
        for (at, place) in self.places.iter_mut().enumerate() {
            if let Holder::Track(of, preference) | Holder::Former(of, preference) = &place.holder
                && *of == handle
            {
                // The section stays, because it carries the transport.
                let idle = (at == self.transport).then(|| Holder::Idle(preference.clone()));
                (place.holder, self.is_stale) = (idle.unwrap_or(Holder::GivenUp), true);
            }
        }
    }

    /// True if all places are seats, so that streams come and go without an offer.
    pub(super) const fn has_seats_alone(&self) -> bool {
        self.seats.are_all()
    }

    /// True if the viewer is, or may be, sent a stream.
    pub(super) fn has(&self, id: &str) -> bool {
        self.ids.contains_key(id)
    }

    /// Stores those tracks of a stream whose codecs are enabled, and gives each kind of track a place if it has none.
    pub(super) fn take_tracks(&mut self, handle: Handle, tracks: &Tracks, codecs: Codecs) {
        let Some(member) = self.members.get_mut(&handle) else { return };
        member.state = Subscribed::Yes;
        member.tracks = Arc::new(codecs.of(tracks));
        let tracks = &member.tracks;
        let lacks = |kind| !tracks.is_empty() && negotiation::default_of(tracks, kind).is_none();
        member.lacks = (lacks(TrackKind::Video), lacks(TrackKind::Audio));
        self.seats.note(handle);
        self.take_places(handle);
    }

    /// Gives each kind of a stream's tracks a place if it has none and there is one, or keeps its seat while it is used.
    fn take_places(&mut self, handle: Handle) {
        for kind in [TrackKind::Audio, TrackKind::Video] {
            if self.seats.have_places(kind) {
                self.keep_seat_if_used(handle, kind);
            }
        }
        self.take_own_places(handle);
    }

    /// Gives each kind of a stream's tracks that has no seats a place if it has none and there is one.
    /// [`Room::answered`] tries again, because places that were given up are free then.
    fn take_own_places(&mut self, handle: Handle) {
        let Some(member) = self.members.get(&handle) else { return };
        let (id, tracks) = (Arc::clone(&member.id), Arc::clone(&member.tracks));
        for (kind, section) in [(TrackKind::Audio, MediaKind::Audio), (TrackKind::Video, MediaKind::Video)] {
            if self.seats.have_places(kind) {
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
        // The first section in use carries the transport, so the sections before it stay unused.
        if let Some(place) = self.places.iter_mut().skip(self.transport).find(is_free) {
            place.holder = holder;
        } else if self.places.len() < ::webrtc::OFFERED_SECTIONS_MAX {
            self.places.push(Place { kind, holder });
        } else {
            return;
        }
        self.is_stale = true;
    }

    /// Notes that the worker waits for a stream. The other streams are offered without it.
    pub(super) fn hold(&mut self, handle: Handle) {
        if let Some(member) = self.members.get_mut(&handle).filter(|member| member.state == Subscribed::Asked)
        {
            member.state = Subscribed::Held;
        }
    }

    /// Ends the sections in which a stream was sent before there were seats.
    fn end_former(&mut self) {
        let former = self.places.iter().find_map(|place| match &place.holder {
            Holder::Former(handle, _) => Some(*handle),
            Holder::Track(..)
            | Holder::Seat(..)
            | Holder::Transport
            | Holder::Data
            | Holder::Idle(_)
            | Holder::GivenUp
            | Holder::Withdrawn
            | Holder::Free => None,
        });
        let Some(handle) = former else { return };
        for (at, place) in self.places.iter_mut().enumerate() {
            if let Holder::Former(_, preference) = &place.holder {
                let idle = (at == self.transport).then(|| Holder::Idle(preference.clone()));
                place.holder = idle.unwrap_or(Holder::GivenUp);
            }
        }
        self.is_stale = true;
        if let Some(member) = self.members.get_mut(&handle) {
            member.viewer = None;
        }
    }

    /// Restarts a stream whose codec has changed: the stream gets new places, or continues in the seats that it has.
    pub(super) fn begin_anew(&mut self, handle: Handle, tracks: &Tracks, codecs: Codecs) {
        self.give_up(handle);
        self.vacate_seats(handle);
        if let Some(member) = self.members.get_mut(&handle) {
            member.viewer = None;
        }
        self.take_tracks(handle, tracks, codecs);
    }

    // ---- commands of the page

    /// True if streams take turns on seats of any kind.
    pub(super) const fn has_seats(&self) -> bool {
        self.seats.has(TrackKind::Video) || self.seats.has(TrackKind::Audio)
    }

    /// The pace at which commands take effect.
    pub(super) const fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }

    // ---- offers

    /// True while an offer waits for its answer.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Returns the sections of the next offer, if the last one is out of date and answered.
    pub(super) fn poll_offer(&mut self) -> Option<Vec<(MediaKind, MediaPreference)>> {
        let is_settled = self.members.values().all(|member| member.state != Subscribed::Asked);
        if !self.is_stale || self.is_open || !is_settled {
            return None;
        }
        (self.is_stale, self.is_open) = (false, true);
        let (places, numbers) = (&mut self.places, &mut self.numbers);
        Some(places.iter_mut().map(|place| (place.kind.clone(), place.offer(numbers))).collect())
    }

    /// Handles the answer to an offer. Returns the streams that begin or change their sections.
    pub(super) fn answered(&mut self, now: Instant, peer: &mut Peer) -> Vec<Handle> {
        self.is_open = false;
        for place in self.places.iter_mut().filter(|place| matches!(place.holder, Holder::Withdrawn)) {
            place.holder = Holder::Free;
        }
        self.end_former();
        let handles: Vec<Handle> = self.members.keys().copied().collect();
        if ![TrackKind::Audio, TrackKind::Video].iter().all(|kind| self.seats.have_places(*kind)) {
            handles.iter().for_each(|handle| self.take_own_places(*handle));
        }
        let began = handles.into_iter().filter(|handle| self.settle(now, peer, *handle)).collect();
        self.apply_wants();
        began
    }

    /// Assigns a stream its current sections. Returns false if nothing changes.
    fn settle(&mut self, now: Instant, peer: &mut Peer, handle: Handle) -> bool {
        let is_own = |place: &Place| match &place.holder {
            Holder::Track(of, _) | Holder::Former(of, _) => *of == handle,
            Holder::Seat(kind, seat, _) => self.seats.holder(*kind, *seat) == Some(handle),
            Holder::Transport
            | Holder::Data
            | Holder::Idle(_)
            | Holder::GivenUp
            | Holder::Withdrawn
            | Holder::Free => false,
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

    /// Returns the viewer of a stream, and the number of streams that share the path.
    pub(super) fn viewer(&mut self, handle: Handle) -> Option<(&mut Viewer, usize)> {
        let shares = self.shares();
        let viewer = self.members.get_mut(&handle)?.viewer.as_deref_mut()?;
        Some((viewer, shares))
    }

    /// Number of streams sent with video, at least 1.
    fn shares(&self) -> usize {
        let viewers = self.members.values().filter_map(|member| member.viewer.as_ref());
        viewers.filter(|viewer| viewer.video().is_some()).count().max(1)
    }

    /// Returns the viewers of all streams being sent, by handle.
    pub(super) fn viewers(&mut self) -> impl Iterator<Item = (Handle, &mut Viewer)> {
        let members = self.members.iter_mut();
        members.filter_map(|(handle, member)| Some((*handle, member.viewer.as_deref_mut()?)))
    }

    /// Returns the subscription and the track that a section carries.
    pub(super) fn carries(&self, section: SectionId) -> Option<(Handle, TrackId)> {
        let handle = match self.places.get(usize::from(section.0))?.holder {
            Holder::Track(handle, _) | Holder::Former(handle, _) => handle,
            Holder::Seat(kind, seat, _) => self.seats.holder(kind, seat)?,
            Holder::Transport
            | Holder::Data
            | Holder::Idle(_)
            | Holder::GivenUp
            | Holder::Withdrawn
            | Holder::Free => {
                return None;
            }
        };
        Some((handle, self.members.get(&handle)?.viewer.as_ref()?.track_of(section)?))
    }

    /// True if the tracks of a stream have changed.
    pub(super) fn has_other_tracks(&self, handle: Handle, tracks: &Tracks) -> bool {
        self.members.get(&handle).is_some_and(|member| member.tracks.epoch != tracks.epoch)
    }

    /// Sets the kinds of tracks wanted of a stream, by its id or the name of one of its tracks; `None` leaves a kind
    /// unchanged. Returns its subscription, if it is being sent.
    pub(super) fn want(&mut self, name: &str, video: Option<bool>, audio: Option<bool>) -> Option<Handle> {
        let id = negotiation::stream_of_track(name);
        let Some(handle) = self.ids.get(id).copied() else {
            self.choice.want(id, video, audio);
            return None;
        };
        let member = self.members.get_mut(&handle)?;
        let (was_video, was_audio) = member.wants;
        member.wants = (video.unwrap_or(was_video), audio.unwrap_or(was_audio));
        for kind in [TrackKind::Video, TrackKind::Audio] {
            self.keep_seat_if_used(handle, kind);
        }
        self.apply_wants();
        self.viewer(handle).map(|_| handle)
    }

    /// Sets the height wanted of a stream; `None` to choose by the path.
    pub(super) fn force(&mut self, id: &str, height: Option<u32>) {
        let member = self.ids.get(id).and_then(|handle| self.members.get_mut(handle));
        if let Some(viewer) = member.and_then(|member| member.viewer.as_mut()) {
            viewer.force(height);
        }
    }

    /// Sets the range of streams whose video is sent, for pages that show a part of a large room. If there are seats
    /// for video, these streams keep theirs until the page changes the range.
    pub(super) fn turn_over(&mut self, window: Range<usize>) {
        if self.seats.has(TrackKind::Video) {
            self.pin_window(window);
        } else {
            self.window = window;
        }
        self.apply_wants();
    }

    /// Selects the wanted tracks of each viewer's stream; video only within the window.
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

    /// Describes the tracks of all streams being sent.
    pub(super) fn info(&self) -> Vec<TrackInfo> {
        let viewers = self.members.values().filter_map(|member| member.viewer.as_ref());
        viewers.flat_map(|viewer| viewer.info()).collect()
    }

    /// Returns the number of pictures that were left out because the path had no room.
    pub(super) fn left_out(&self) -> u64 {
        let viewers = self.members.values().filter_map(|member| member.viewer.as_ref());
        viewers.map(|viewer| viewer.left_out()).sum()
    }

    /// Returns the rates of all streams, when due.
    pub(super) fn poll_bitrates(&mut self, now: Instant, peer: &Peer) -> Option<Bitrates> {
        let rates: Vec<Bitrates> =
            self.viewers().filter_map(|(_, viewer)| viewer.poll_bitrates(now, peer)).collect();
        let target = rates.first()?.target;
        let sum = |of: fn(&Bitrates) -> u64| rates.iter().map(of).sum();
        Some(Bitrates { target, video: sum(|rates| rates.video), audio: sum(|rates| rates.audio) })
    }

    /// Returns the time at which waiting commands take effect, or refused streams are tried again; while `connected`,
    /// also the time of the next evaluation of a path, or of the next list of speakers.
    pub(super) fn poll_timeout(&self, connected: bool) -> Option<Instant> {
        let viewers = self.members.values().filter_map(|member| member.viewer.as_ref());
        let media = viewers.filter_map(|viewer| viewer.poll_timeout()).chain(self.loud.poll_timeout());
        // While commands wait, so does everything else that changes subscriptions.
        let due = self.pace.poll_timeout().or_else(|| self.seats.retry_at());
        media.filter(|_| connected).chain(due).min()
    }
}

impl Place {
    /// Returns the section to offer now.
    fn offer(&mut self, numbers: &mut Numbers) -> MediaPreference {
        let nothing = MediaPreference { direction: Direction::SendOnly, formats: Vec::new(), msid: None };
        match &self.holder {
            Holder::Transport => {
                let mut formats =
                    ::webrtc::offered_formats(media::codec::Codec::Opus, *PAYLOAD_TYPES.start());
                formats.retain_mut(|format| numbers.give(format));
                MediaPreference { direction: Direction::Inactive, formats, msid: None }
            }
            Holder::Track(_, preference) | Holder::Former(_, preference) | Holder::Seat(_, _, preference) => {
                preference.clone()
            }
            Holder::Idle(preference) => {
                let direction = Direction::Inactive;
                MediaPreference { direction, formats: preference.formats.clone(), msid: None }
            }
            Holder::GivenUp => {
                self.holder = Holder::Withdrawn;
                nothing
            }
            Holder::Data | Holder::Withdrawn | Holder::Free => nothing,
        }
    }
}

/// Forms with their payload types: the same in all sections, for the life of the peer (RFC 9143 §9.1).
#[derive(Debug, Default)]
struct Numbers(Vec<Format>);

impl Numbers {
    /// Records the payload type that a form already has.
    fn keep(&mut self, format: &Format) {
        self.0.push(format.clone());
    }

    /// Gives a form its payload type. Returns false if none is left. Streams whose forms differ only in a level share one:
    /// there are fewer payload types than streams of a room.
    fn give(&mut self, format: &mut Format) -> bool {
        if !PAYLOAD_TYPES.contains(&format.payload_type().number()) {
            // A form with a static payload type keeps it.
            return true;
        }
        if let Some(known) = self.0.iter().find(|known| known.matches(format)) {
            format.parameters.clone_from(&known.parameters);
            format.rtpmap.payload_type = known.payload_type();
            return true;
        }
        let is_free = |number: &PayloadType| self.0.iter().all(|known| known.payload_type() != *number);
        let Some(number) = PAYLOAD_TYPES.filter_map(PayloadType::new).find(is_free) else {
            let (codec, parameters) = (&format.rtpmap.encoding, &format.parameters);
            tracing::info!(%codec, %parameters, "a form is not offered to a room's viewer: no payload type is left");
            return false;
        };
        format.rtpmap.payload_type = number;
        self.0.push(format.clone());
        true
    }
}
