//! A session that plays a main track ([`super::super::room`]): its streams, offers, and units.

use std::ops::Range;
use std::sync::Arc;

use serde_json::json;

use super::{
    Context, DESCRIBE_WAIT, Departure, Described, Event, Format, FromSession, Handle, NoSubscription,
    Outcome, PlayAsk, Refused, Role, RtcSession, SubscriptionEvent, SubscriptionNews, negotiation,
};
use crate::hub::Delivery;
use crate::protocol::SubtrackNews;
use crate::protocol::webrtc::room::{Choice, Limits, Room, Step};
use crate::protocol::webrtc::settings::RtcAppSettings;
use crate::types::StreamKey;

impl RtcSession {
    /// Handles news of the main track.
    pub(super) fn subtrack_news(&mut self, ctx: &Context<'_>, news: SubtrackNews<'_>) {
        match news {
            SubtrackNews::Room(streams) => match &mut self.role {
                Role::AskedPlay(_) => {
                    self.granted = true;
                    let choice = self.first_offer.take().unwrap_or_default().choice;
                    let room = self.room(ctx, choice);
                    self.role = Role::Room(Box::new(room));
                    streams.iter().for_each(|key| self.came(key));
                }
                // The session subscribes to these streams once the client has answered.
                Role::Offered(_, known) => *known = Some(streams.to_vec()),
                Role::Viewer(_) => self.join_room(ctx, streams),
                Role::None
                | Role::AskedPublish(_)
                | Role::Granted(_)
                | Role::Publisher(_)
                | Role::Room(_) => return,
            },
            SubtrackNews::Came(key) => self.came(key),
            SubtrackNews::Role { key, role } => {
                let said =
                    json!({"eventType": "UPDATE_PARTICIPANT_ROLE", "streamId": &*key.id, "role": role});
                self.say_to_room_page(ctx, said.to_string());
            }
            SubtrackNews::Loudness { key, level } => {
                let Role::Room(room) = &mut self.role else { return };
                room.speaks(ctx.now.mono, &key.id, level);
            }
            SubtrackNews::Left(key) => {
                if let Role::Offered(_, Some(known)) = &mut self.role {
                    known.retain(|one| one != key);
                }
                let Role::Room(room) = &mut self.role else { return };
                if let Some(handle) = room.left(&key.id) {
                    self.events.push_back(Event::Subscription(handle, SubscriptionEvent::Unsubscribe));
                }
            }
        }
        self.offer_room(ctx);
        // If all places are seats, streams come and go without an offer, so the page is notified of the change here.
        // Otherwise, the page is notified once it has answered the next offer.
        if let (Role::Room(room), SubtrackNews::Came(_) | SubtrackNews::Left(_)) = (&self.role, news)
            && room.has_seats_alone()
        {
            self.say_to_room_page(ctx, self.list_of_tracks());
        }
        self.say_speakers(ctx);
    }

    /// Makes the room of the main track, without streams.
    fn room(&mut self, ctx: &Context<'_>, choice: Choice) -> Room {
        let has_data = self.data_settings(ctx).enabled;
        if has_data {
            self.peer.take_data();
        }
        let limits = ctx.apps.get(&self.key.app).map(|app| RtcAppSettings::of(app).limits);
        Room::new(choice, has_data, limits.unwrap_or(Limits::NONE), self.codecs(ctx))
    }

    /// Turns a viewer of the main track's own stream into a viewer of all its streams, because others have joined. From
    /// here on, the main track's own stream is subscribed to under another handle.
    pub(super) fn join_room(&mut self, ctx: &Context<'_>, streams: &[StreamKey]) {
        if !matches!(self.role, Role::Viewer(_)) {
            return;
        }
        let mut offer = self.first_offer.take().unwrap_or_default();
        let room = self.room(ctx, std::mem::take(&mut offer.choice));
        let Role::Viewer(viewer) = std::mem::replace(&mut self.role, Role::None) else { return };
        let own = self.key.clone();
        let Some((room, handle)) =
            room.of_viewer(&own.id, viewer, *offer, (self.peer.sections(), self.peer.offered_sections()))
        else {
            // The session cannot become a room, because the client made the offer. The session ends, and the page plays
            // the stream again.
            return self.end(ctx, Departure::Clean);
        };
        self.role = Role::Room(Box::new(room));
        if let Some(handle) = handle {
            self.subscribe_to(handle, own);
        }
        streams.iter().for_each(|key| self.came(key));
        if self.connected {
            self.room_connected();
        }
        self.offer_room(ctx);
    }

    fn came(&mut self, key: &StreamKey) {
        if let Role::Offered(_, Some(known)) = &mut self.role {
            known.push(key.clone());
        }
        let Role::Room(room) = &mut self.role else { return };
        if let Some(handle) = room.came(&key.id) {
            self.subscribe_to(handle, key.clone());
        }
    }

    fn subscribe_to(&mut self, handle: Handle, key: StreamKey) {
        let format = Format::new(&super::super::FORMAT, 0);
        let (params, origin) = (Vec::new(), String::new());
        let ask = PlayAsk { key, format, params, origin, via: Vec::new(), takes_subtracks: false };
        self.events.push_back(Event::Subscription(handle, SubscriptionEvent::Subscribe(ask)));
    }

    /// Handles news of a stream of the main track.
    pub(super) fn member_news(&mut self, ctx: &Context<'_>, handle: Handle, news: &SubscriptionNews<'_>) {
        let codecs = self.codecs(ctx);
        let Role::Room(room) = &mut self.role else { return };
        match news {
            SubscriptionNews::Verdict(Ok(tracks)) => {
                room.take_tracks(handle, tracks, codecs);
                // A stream that has a viewer continues in sections that the peer has accepted before. Any other stream is
                // paused until the peer has accepted its sections.
                let select =
                    room.viewer(handle).map(|(viewer, _)| SubscriptionEvent::Select(viewer.selection()));
                let waits = select.is_none() || !self.connected;
                let pause = waits.then_some(SubscriptionEvent::Pause(true));
                let events = select.into_iter().chain(pause);
                self.events.extend(events.map(|event| Event::Subscription(handle, event)));
            }
            SubscriptionNews::TracksKnown(tracks) => room.take_tracks(handle, tracks, codecs),
            SubscriptionNews::Verdict(Err(NoSubscription::Resources)) => room.refuse(ctx.now.mono, handle),
            SubscriptionNews::Verdict(Err(_)) | SubscriptionNews::Ended(_) => room.remove(handle),
            SubscriptionNews::Held => room.hold(handle),
            SubscriptionNews::Seasoned
            | SubscriptionNews::KindAdded(_)
            | SubscriptionNews::Zero(_)
            | SubscriptionNews::Subtracks(_) => {}
        }
        self.offer_room(ctx);
    }

    /// Carries out the effects of changed seats.
    fn take_steps(&mut self, ctx: &Context<'_>) {
        let mut has_changed = false;
        loop {
            let Role::Room(room) = &mut self.role else { return };
            let Some(step) = room.poll_step(ctx.now.mono, &mut self.peer) else { break };
            has_changed = true;
            match step {
                Step::Subscribe(handle, id) => {
                    self.subscribe_to(handle, StreamKey { app: Arc::clone(&self.key.app), id });
                }
                Step::Unsubscribe(handle) => {
                    self.events.push_back(Event::Subscription(handle, SubscriptionEvent::Unsubscribe));
                }
                Step::Begin(handle) => self.begin_stream(ctx, handle),
                Step::Select(handle) => self.select_of_room(handle),
            }
        }
        if has_changed
            && let Role::Room(room) = &mut self.role
            && let Some(assignments) = room.poll_assignments(&self.key.id)
        {
            self.say_to_room_page(ctx, assignments);
        }
    }

    /// Begins to send a stream in its current sections.
    fn begin_stream(&mut self, ctx: &Context<'_>, handle: Handle) {
        let Role::Room(room) = &mut self.role else { return };
        let Some((viewer, _)) = room.viewer(handle) else { return };
        viewer.tell_bitrates(ctx.now.mono);
        let soon = viewer.video().map(|track| SubscriptionEvent::KeyFrameSoon(Some(track)));
        let select = SubscriptionEvent::Select(viewer.selection());
        let resume = self.connected.then_some(SubscriptionEvent::Pause(false));
        let events = [soon, Some(select), resume].into_iter().flatten();
        self.events.extend(events.map(|event| Event::Subscription(handle, event)));
    }

    fn select_of_room(&mut self, handle: Handle) {
        let Role::Room(room) = &mut self.role else { return };
        if let Some((viewer, _)) = room.viewer(handle) {
            let select = SubscriptionEvent::Select(viewer.selection());
            self.events.push_back(Event::Subscription(handle, select));
        }
    }

    /// Offers the current streams, if they differ from the last offer.
    pub(super) fn offer_room(&mut self, ctx: &Context<'_>) {
        if let Role::Room(room) = &mut self.role
            && room.pace().waits()
        {
            return;
        }
        self.take_steps(ctx);
        let Role::Room(room) = &mut self.role else { return };
        let Some(sections) = room.poll_offer() else { return };
        // If the peer never answers this offer, media continues in the sections that it has accepted before.
        let sends = self.connected && room.viewers().next().is_some();
        match self.peer.offer(&sections) {
            Ok(offer) => {
                let names = negotiation::names(&offer);
                let described: Described = self.describe(&offer, names);
                self.send_description(ctx, described);
                if !sends {
                    self.describe_by = ctx.now.mono.checked_add(DESCRIBE_WAIT.saturating_mul(3));
                }
            }
            Err(error) => self.refuse(Refused::Description(error)),
        }
    }

    /// Begins the streams in an offer that the peer has answered.
    pub(super) fn room_answered(&mut self, ctx: &Context<'_>) {
        self.describe_by = None;
        self.say_to_room_page(ctx, self.list_of_tracks());
        // Seats may have changed by commands whose effects wait for the end of the interval. The streams that have lost
        // their seats must end before others begin in the same sections.
        self.take_steps(ctx);
        let Role::Room(room) = &mut self.role else { return };
        let began = room.answered(ctx.now.mono, &mut self.peer);
        began.into_iter().for_each(|handle| self.begin_stream(ctx, handle));
        self.say_assignments(ctx);
        self.offer_room(ctx);
    }

    /// Returns the message that the room's streams have changed.
    fn list_of_tracks(&self) -> String {
        json!({"eventType": "TRACK_LIST_UPDATED", "streamId": &*self.key.id}).to_string()
    }

    /// Sends the list of videos to the page.
    pub(super) fn say_assignments(&mut self, ctx: &Context<'_>) {
        if let Role::Room(room) = &self.role {
            let assignments = room.assignments(&self.key.id);
            self.say_to_room_page(ctx, assignments);
        }
    }

    /// Sends the list of speakers to the page, when due.
    fn say_speakers(&mut self, ctx: &Context<'_>) {
        if let Role::Room(room) = &mut self.role
            && let Some(speakers) = room.poll_speakers(ctx.now.mono, &self.key.id)
        {
            self.say_to_room_page(ctx, speakers);
        }
    }

    fn say_to_room_page(&mut self, ctx: &Context<'_>, text: String) {
        if let Some(data) = &self.data {
            data.say(ctx.now.mono, &mut self.peer, text);
        }
    }

    /// Sets the range of streams whose video is sent.
    pub(super) fn turn_room_over(&mut self, ctx: &Context<'_>, window: Range<usize>) {
        let Role::Room(room) = &mut self.role else { return };
        room.turn_over(window);
        self.take_command(ctx);
    }

    /// Pins or unpins the video of a stream.
    pub(super) fn pin_in_room(&mut self, ctx: &Context<'_>, name: &str, pins: bool) {
        let Role::Room(room) = &mut self.role else { return };
        if !room.pin(name, pins) {
            self.want_in_room(ctx, name, (Some(pins), None));
        }
        self.take_command(ctx);
    }

    /// Limits the number of videos.
    pub(super) fn limit_videos(&mut self, ctx: &Context<'_>, count: Option<usize>) {
        let Role::Room(room) = &mut self.role else { return };
        room.limit_videos(count);
        self.take_command(ctx);
    }

    /// Carries out a command of the page now, or together with others at the end of the interval.
    fn take_command(&mut self, ctx: &Context<'_>) {
        let Role::Room(room) = &mut self.role else { return };
        if room.pace().may_change(ctx.now.mono) {
            self.carry_out_commands(ctx);
        }
    }

    fn carry_out_commands(&mut self, ctx: &Context<'_>) {
        let Role::Room(room) = &mut self.role else { return };
        for (handle, viewer) in room.viewers() {
            let select = SubscriptionEvent::Select(viewer.selection());
            self.events.push_back(Event::Subscription(handle, select));
        }
        self.offer_room(ctx);
        self.say_assignments(ctx);
    }

    /// Handles an expired deadline of the room.
    pub(super) fn room_timeout(&mut self, ctx: &Context<'_>) {
        if let Role::Room(room) = &mut self.role
            && room.pace().poll(ctx.now.mono)
        {
            self.carry_out_commands(ctx);
        }
        self.offer_room(ctx);
        if self.connected {
            self.look_at_room(ctx);
        }
    }

    /// Starts the streams, because media can flow.
    pub(super) fn room_connected(&mut self) {
        let Role::Room(room) = &mut self.role else { return };
        for (handle, _) in room.viewers() {
            self.events.push_back(Event::Subscription(handle, SubscriptionEvent::Pause(false)));
        }
        if !std::mem::replace(&mut self.started, true) {
            self.tell(FromSession::Started);
        }
    }

    /// Sends a unit of a stream.
    pub(super) fn room_unit(&mut self, ctx: &Context<'_>, handle: Handle, unit: &Delivery<'_>) {
        let codecs = self.codecs(ctx);
        let Role::Room(room) = &mut self.role else { return };
        let tracks = &unit.entry.tracks;
        if room.has_other_tracks(handle, tracks) {
            room.take_tracks(handle, tracks, codecs);
        }
        if let Some((viewer, _)) = room.viewer(handle) {
            match viewer.send(ctx.now.mono, &mut self.peer, unit, &self.key) {
                Outcome::OtherCodec => {
                    room.begin_anew(handle, tracks, codecs);
                    self.events.push_back(Event::Subscription(handle, SubscriptionEvent::Pause(true)));
                }
                Outcome::LeftOut => {
                    if let Some(track) = viewer.key_frame_due(ctx.now.mono, &self.peer) {
                        let needed = SubscriptionEvent::KeyFrameNeeded(Some(track));
                        self.events.push_back(Event::Subscription(handle, needed));
                    }
                }
                Outcome::Switched(_) | Outcome::Done => {}
            }
        }
        self.offer_room(ctx);
    }

    /// Evaluates the path for each stream.
    fn look_at_room(&mut self, ctx: &Context<'_>) {
        let now = ctx.now.mono;
        let Role::Room(room) = &mut self.role else { return };
        let handles: Vec<Handle> = room.viewers().map(|(handle, _)| handle).collect();
        for handle in handles {
            let Some((viewer, shares)) = room.viewer(handle) else { continue };
            if viewer.look(now, &mut self.peer, shares) {
                let select = SubscriptionEvent::Select(viewer.selection());
                self.events.push_back(Event::Subscription(handle, select));
            }
        }
        if let Some(bitrates) = room.poll_bitrates(now, &self.peer) {
            self.tell(FromSession::Bitrates(bitrates));
        }
        self.say_speakers(ctx);
    }

    /// Sets the kinds of tracks that the page wants of the stream that it plays, or of one stream of a main track;
    /// `None` leaves a kind unchanged. If the stream is not sent yet, it begins with these kinds.
    pub(super) fn want(&mut self, ctx: &Context<'_>, name: &str, video: Option<bool>, audio: Option<bool>) {
        let id = negotiation::stream_of_track(name);
        match &mut self.role {
            Role::Viewer(viewer) if *id == *self.key.id => {
                let (had_video, had_audio) = viewer.wants();
                viewer.want(video.unwrap_or(had_video), audio.unwrap_or(had_audio));
                if viewer.may_select(ctx.now.mono) {
                    self.select();
                }
            }
            Role::Room(_) => {
                self.want_in_room(ctx, name, (video, audio));
                if let Role::Room(room) = &mut self.role
                    && (!room.has_seats() || room.pace().may_change(ctx.now.mono))
                {
                    self.offer_room(ctx);
                }
            }
            Role::AskedPlay(_) | Role::Offered(..) | Role::Viewer(_) => {
                if let Some(first) = &mut self.first_offer {
                    first.choice.want(id, video, audio);
                }
            }
            Role::None | Role::AskedPublish(_) | Role::Granted(_) | Role::Publisher(_) => {}
        }
    }

    fn want_in_room(&mut self, ctx: &Context<'_>, name: &str, (video, audio): (Option<bool>, Option<bool>)) {
        let Role::Room(room) = &mut self.role else { return };
        if let Some(handle) = room.want(name, video, audio)
            && room.viewer(handle).is_some_and(|(viewer, _)| viewer.may_select(ctx.now.mono))
        {
            self.select_of_room(handle);
        }
    }

    /// Sets the height wanted of the stream that the client plays; `None` to choose by the path.
    pub(super) fn force(&mut self, height: Option<u32>) {
        if let Role::Viewer(viewer) = &mut self.role {
            viewer.force(height);
        } else if let Role::Room(room) = &mut self.role {
            room.force(&self.key.id, height);
        }
    }
}
