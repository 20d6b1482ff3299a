//! The seats of a room's viewer, and the streams that take and leave them.
//!
//! [`Room::poll_step`] returns the effects of a change of seats. A stream that loses a seat is no longer sent in that
//! seat's section; once it has lost its last seat, it is unsubscribed from. A stream that gets its first seat is
//! subscribed to, and begins at a key frame in a section that the page knows. Nothing is negotiated. A change requires
//! a look at the viewer's seats only; the streams of the room are searched only if a seat becomes free.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{Peer, SectionId, offered_formats};
use media::TrackKind;
use media::codec::Codec;
use sdp::{Format, MediaKind};

use super::seating::{SEATS_MAX, Seating};
use super::{Codecs, Holder, Member, PAYLOAD_TYPES, Room, SILENCE, Subscribed, negotiation};
use crate::types::Handle;

/// Time after which a subscription for which there was no room is tried again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Maximum number of tracks of each kind sent to a viewer of a room; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::protocol::webrtc) struct Limits {
    /// `maxVideoTrackCount`.
    pub(in crate::protocol::webrtc) video: Option<usize>,
    /// `maxAudioTrackCount`.
    pub(in crate::protocol::webrtc) audio: Option<usize>,
}

impl Limits {
    /// No limits: a place for each track.
    pub(in crate::protocol::webrtc) const NONE: Self = Self { video: None, audio: None };
}

/// An action that the session must take because seats have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::protocol::webrtc) enum Step {
    /// Subscribe to a stream under this handle.
    Subscribe(Handle, Arc<str>),
    /// Unsubscribe from a stream without a seat.
    Unsubscribe(Handle),
    /// Begin to send a stream, or send it in other sections.
    Begin(Handle),
    /// Change the selected tracks of a stream.
    Select(Handle),
}

/// The seats of a viewer.
#[derive(Debug)]
pub(super) struct Seats {
    limits: Limits,
    codecs: Codecs,
    video: Option<Seating>,
    audio: Option<Seating>,
    /// Streams whose seats have changed.
    changed: BTreeSet<Handle>,
    /// Streams for which there was no room, and the time of the next attempt.
    refused: BTreeSet<Handle>,
    retry_at: Option<Instant>,
    /// Sections in which the current stream must end.
    vacated: Vec<SectionId>,
}

impl Seats {
    pub(super) fn new(limits: Limits, codecs: Codecs) -> Self {
        let seating = |limit: Option<usize>| limit.map(Seating::new);
        let (video, audio) = (seating(limits.video), seating(limits.audio));
        Self {
            limits,
            codecs,
            video,
            audio,
            changed: BTreeSet::new(),
            refused: BTreeSet::new(),
            retry_at: None,
            vacated: Vec::new(),
        }
    }

    const fn of(&self, kind: TrackKind) -> Option<&Seating> {
        match kind {
            TrackKind::Video => self.video.as_ref(),
            TrackKind::Audio => self.audio.as_ref(),
            TrackKind::Data => None,
        }
    }

    /// True if there are seats for a kind.
    pub(super) const fn has(&self, kind: TrackKind) -> bool {
        self.of(kind).is_some()
    }

    /// True if the seats of a kind are places in our offers. If false, seats only select among the places that
    /// each stream has.
    pub(super) const fn have_places(&self, kind: TrackKind) -> bool {
        match kind {
            TrackKind::Video => self.limits.video.is_some(),
            TrackKind::Audio => self.limits.audio.is_some(),
            TrackKind::Data => false,
        }
    }

    /// True if the seats of any kind are places.
    pub(super) const fn are_any(&self) -> bool {
        self.have_places(TrackKind::Video) || self.have_places(TrackKind::Audio)
    }

    /// True if no stream has a place of its own.
    pub(super) const fn are_all(&self) -> bool {
        self.have_places(TrackKind::Video) && self.have_places(TrackKind::Audio)
    }

    /// Returns whether a stream has a seat; `None` if there are no seats of this kind.
    pub(super) fn seats(&self, kind: TrackKind, stream: Handle) -> Option<bool> {
        self.of(kind).map(|seating| seating.seats(stream))
    }

    /// Returns the stream in a seat.
    pub(super) fn holder(&self, kind: TrackKind, seat: usize) -> Option<Handle> {
        self.of(kind)?.holder(seat)
    }

    /// Returns the streams in all seats of a kind; `None` if the seats are not places.
    pub(super) fn holders(&self, kind: TrackKind) -> Option<impl Iterator<Item = Option<Handle>> + '_> {
        self.of(kind).filter(|_| self.have_places(kind)).map(Seating::holders)
    }

    /// True if a stream should be subscribed to.
    pub(super) fn needs(&self, stream: Handle) -> bool {
        let is_seated = |kind| self.seats(kind, stream) == Some(true);
        !self.are_all() || is_seated(TrackKind::Video) || is_seated(TrackKind::Audio)
    }

    /// Subscribes again to streams for which there was no room, because there may be room now.
    pub(super) fn retry(&mut self) {
        self.changed.append(&mut self.refused);
        self.retry_at = None;
    }

    /// Returns the time of the next attempt to subscribe to streams for which there was no room.
    pub(super) const fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Records that a stream's seats have changed, for [`Room::poll_step`].
    pub(super) fn note(&mut self, stream: Handle) {
        if self.are_any() {
            self.changed.insert(stream);
        }
    }
}

/// Returns the name of a seat, which pages use as the name of a track.
pub(super) fn label(kind: TrackKind, seat: usize) -> String {
    let kind = if kind == TrackKind::Video { "video" } else { "audio" };
    format!("{kind}Track{seat}")
}

impl Room {
    /// Adds a section to our offers for each seat that is a place, in forms of every enabled codec. Seats for audio
    /// offer only Opus, because an RTP source must keep its clock rate when another stream takes the seat.
    pub(super) fn offer_seats(&mut self) {
        for kind in [TrackKind::Audio, TrackKind::Video] {
            let count =
                self.seats.of(kind).filter(|_| self.seats.have_places(kind)).map_or(0, Seating::count);
            let is_offered = |seat| {
                let mut places = self.places.iter();
                places.any(|place| matches!(place.holder, Holder::Seat(of, n, _) if of == kind && n == seat))
            };
            let missing: Vec<usize> = (0..count).filter(|seat| !is_offered(*seat)).collect();
            let section = if kind == TrackKind::Video { MediaKind::Video } else { MediaKind::Audio };
            for seat in missing {
                let formats = self.forms_of_seat(kind);
                if let Some(preference) = self.preference_of(kind, &label(kind, seat), formats) {
                    self.take_place(section.clone(), Holder::Seat(kind, seat, preference));
                }
            }
        }
    }

    fn forms_of_seat(&self, kind: TrackKind) -> Vec<Format> {
        let codecs: &[Codec] = match kind {
            TrackKind::Video => &[Codec::H264, Codec::Vp8, Codec::Vp9, Codec::Av1, Codec::H265],
            TrackKind::Audio => &[Codec::Opus],
            TrackKind::Data => &[],
        };
        let on = codecs.iter().filter(|codec| self.seats.codecs.has(**codec));
        on.flat_map(|codec| offered_formats(*codec, *PAYLOAD_TYPES.start())).collect()
    }

    /// Applies a change to the seats of a kind, and records its effects for [`Room::poll_step`].
    fn reseat<T>(
        &mut self,
        kind: TrackKind,
        change: impl FnOnce(&mut Seating, &dyn Fn(Handle) -> Option<Instant>) -> T,
    ) {
        let spoke = |stream| self.members.get(&stream).and_then(|member| member.spoke);
        let seating = match kind {
            TrackKind::Video => &mut self.seats.video,
            TrackKind::Audio => &mut self.seats.audio,
            TrackKind::Data => return,
        };
        let Some(seating) = seating else { return };
        let before: Vec<Option<Handle>> = seating.holders().collect();
        change(seating, &spoke);
        for seat in 0..before.len().max(seating.count()) {
            let (was, is) = (before.get(seat).copied().flatten(), seating.holder(seat));
            if was == is {
                continue;
            }
            self.seats.changed.extend([was, is].into_iter().flatten());
            let is_it =
                |holder: &Holder| matches!(holder, Holder::Seat(of, n, _) if *of == kind && *n == seat);
            let place = (0..).map(SectionId).zip(&self.places).find(|(_, place)| is_it(&place.holder));
            self.seats.vacated.extend(place.map(|(section, _)| section));
        }
    }

    /// Gives free seats to streams without a seat: first to the streams that spoke most recently, then to the streams
    /// that joined first.
    pub(super) fn fill_seats(&mut self) {
        for kind in [TrackKind::Video, TrackKind::Audio] {
            while self.seats.of(kind).is_some_and(Seating::has_free) {
                let is_standing = |stream| self.seats.seats(kind, stream) == Some(false);
                let waiting = self.members.iter().filter(|(stream, _)| is_standing(**stream));
                let waiting = waiting.filter(|(_, member)| member.takes_seat(kind));
                let Some((next, _)) = waiting.rev().max_by_key(|(_, member)| member.spoke) else { break };
                let next = *next;
                self.reseat(kind, |seating, _| seating.take_free(next));
            }
        }
    }

    /// Records the loudness of a stream, and gives the stream a seat if it speaks.
    pub(in crate::protocol::webrtc) fn speaks(&mut self, now: Instant, id: &str, level: u8) {
        let Some(handle) = self.ids.get(id).copied() else { return };
        let Some(member) = self.members.get_mut(&handle) else { return };
        member.level = level;
        self.loud.note(handle, level);
        if level >= SILENCE {
            return;
        }
        member.spoke = Some(now);
        let takes = [TrackKind::Video, TrackKind::Audio].map(|kind| (kind, member.takes_seat(kind)));
        for (kind, takes_seat) in takes {
            if takes_seat {
                self.reseat(kind, |seating, spoke| seating.take_for_speaker(now, handle, spoke));
            }
        }
    }

    /// Frees the seats of a stream that has left the room.
    pub(super) fn leave_seats(&mut self, stream: Handle) {
        for kind in [TrackKind::Video, TrackKind::Audio] {
            self.reseat(kind, |seating, _| seating.leave(stream));
        }
        self.fill_seats();
    }

    /// Frees a stream's seat if the stream has no use for it, and fills free seats.
    pub(super) fn keep_seat_if_used(&mut self, stream: Handle, kind: TrackKind) {
        let is_used = self.members.get(&stream).is_some_and(|member| member.takes_seat(kind));
        if !is_used {
            self.reseat(kind, |seating, _| seating.leave(stream));
        }
        self.fill_seats();
    }

    /// Ends the media that a stream sends in its seats. The stream keeps the seats.
    pub(super) fn vacate_seats(&mut self, stream: Handle) {
        for (section, place) in (0..).map(SectionId).zip(&self.places) {
            if let Holder::Seat(kind, seat, _) = place.holder
                && self.seats.holder(kind, seat) == Some(stream)
            {
                self.seats.vacated.push(section);
            }
        }
    }

    /// Pins the streams in the window that the page shows.
    pub(super) fn pin_window(&mut self, window: Range<usize>) {
        let streams = self.members.iter().skip(window.start).take(window.len());
        let takes = streams.filter(|(_, member)| member.takes_seat(TrackKind::Video));
        let streams: Vec<Handle> = takes.map(|(stream, _)| *stream).take(SEATS_MAX).collect();
        self.reseat(TrackKind::Video, |seating, _| seating.pin(&streams));
        self.fill_seats();
    }

    /// Pins or unpins the video of a stream, by its id or the name of a track. Returns false if there are no seats.
    pub(in crate::protocol::webrtc) fn pin(&mut self, name: &str, pins: bool) -> bool {
        let Some(seating) = self.seats.of(TrackKind::Video) else { return false };
        let Some(stream) = self.ids.get(negotiation::stream_of_track(name)).copied() else { return true };
        let mut pinned = seating.pinned();
        pinned.retain(|one| *one != stream);
        if pins {
            // The stream pinned last comes first, because there may be fewer seats than pinned streams.
            pinned.insert(0, stream);
        }
        self.reseat(TrackKind::Video, |seating, _| seating.pin(&pinned));
        self.apply_wants();
        true
    }

    /// Limits the number of videos; `None` for as many as the application allows. All pins are removed.
    pub(in crate::protocol::webrtc) fn limit_videos(&mut self, count: Option<usize>) {
        let most = self.seats.limits.video;
        self.window = 0..super::STREAMS_MAX;
        match (count.map(|count| count.min(most.unwrap_or(SEATS_MAX))).or(most), &self.seats.video) {
            (Some(count), Some(_)) => self.reseat(TrackKind::Video, |seating, _| seating.resize(count)),
            (Some(count), None) => self.seats.video = Some(Seating::new(count)),
            (None, _) => self.seats.video = None,
        }
        let count = self.seats.video.as_ref().map_or(0, Seating::count);
        for place in &mut self.places {
            if matches!(place.holder, Holder::Seat(TrackKind::Video, seat, _) if seat >= count) {
                (place.holder, self.is_stale) = (Holder::GivenUp, true);
            }
        }
        self.offer_seats();
        self.fill_seats();
        self.apply_wants();
    }

    /// Returns the next effect of changed seats, or of a stream that has left.
    pub(in crate::protocol::webrtc) fn poll_step(&mut self, now: Instant, peer: &mut Peer) -> Option<Step> {
        if let Some((handle, id)) = self.add_waiting() {
            return Some(Step::Subscribe(handle, id));
        }
        self.seats.vacated.drain(..).for_each(|section| peer.vacate(now, section));
        if self.seats.retry_at.is_some_and(|at| at <= now) {
            self.seats.retry();
        }
        while let Some(handle) = self.next_changed() {
            let needs = self.seats.needs(handle);
            let Some(member) = self.members.get_mut(&handle) else { continue };
            match (member.state, needs) {
                (Subscribed::No, true) => {
                    member.state = Subscribed::Asked;
                    return Some(Step::Subscribe(handle, Arc::clone(&member.id)));
                }
                (Subscribed::Asked | Subscribed::Held | Subscribed::Yes, false) => {
                    (member.state, member.viewer) = (Subscribed::No, None);
                    member.tracks = Arc::default();
                    self.seats.retry();
                    return Some(Step::Unsubscribe(handle));
                }
                (Subscribed::Yes, true) => {
                    let begins = self.settle(now, peer, handle);
                    self.apply_wants_of(handle);
                    return Some(if begins { Step::Begin(handle) } else { Step::Select(handle) });
                }
                (Subscribed::No, false) | (Subscribed::Asked | Subscribed::Held, true) => {}
            }
        }
        None
    }

    /// Returns the next stream whose seats have changed. Streams without a seat come first, because a session may have
    /// only so many subscriptions.
    fn next_changed(&mut self) -> Option<Handle> {
        let is_subscribed = |member: &Member| member.state != Subscribed::No;
        let ends = |stream: &&Handle| {
            self.members.get(*stream).is_some_and(is_subscribed) && !self.seats.needs(**stream)
        };
        let changed = &self.seats.changed;
        let next = *changed.iter().find(ends).or_else(|| changed.first())?;
        self.seats.changed.remove(&next);
        Some(next)
    }

    /// Notes that there was no room for a subscription. It is tried again when another one ends, and after a while.
    pub(in crate::protocol::webrtc) fn refuse(&mut self, now: Instant, stream: Handle) {
        if let Some(member) = self.members.get_mut(&stream) {
            (member.state, member.viewer, member.tracks) = (Subscribed::No, None, Arc::default());
            self.seats.refused.insert(stream);
            self.seats.retry_at = now.checked_add(RETRY_AFTER);
        }
    }

    /// Like [`Room::apply_wants`], for one stream.
    fn apply_wants_of(&mut self, handle: Handle) {
        let is_in_window =
            || self.members.keys().position(|one| *one == handle).is_some_and(|at| self.window.contains(&at));
        let is_shown = self.seats.seats(TrackKind::Video, handle).unwrap_or_else(is_in_window);
        let is_heard = self.seats.seats(TrackKind::Audio, handle).unwrap_or(true);
        if let Some(member) = self.members.get_mut(&handle)
            && let Some(viewer) = &mut member.viewer
        {
            let (video, audio) = member.wants;
            viewer.want(video && is_shown, audio && is_heard);
        }
    }
}
