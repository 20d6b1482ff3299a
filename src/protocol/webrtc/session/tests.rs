//! Tests of a viewer of a main track (a stream made of other streams, its subtracks) to which subtracks are added
//! while the viewer plays.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of event")]

use ::webrtc::IceMode;

use super::super::pace;
use super::*;
use crate::hub::{Blobs, Pick};
use crate::mail::SessionSettings;
use crate::protocol::webrtc::room::Choice;
use crate::protocol::webrtc::tests::{anchor, config, h264, play_ask, tracks};
use crate::protocol::{Apps, SubtrackNews};
use crate::types::{ConnId, Now, WorkerId};

/// A session that plays `live/s`, and a page that takes all that it is offered.
struct Bench {
    now: Now,
    apps: Apps,
    server: SessionSettings,
    blobs: Blobs,
    session: RtcSession,
    page: Peer,
    tracks: Tracks,
}

impl Bench {
    /// Makes a bench whose page has asked for the stream.
    fn asking() -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let (apps, server, blobs) = (Apps::new(), SessionSettings::default(), Blobs::default());
        let ctx = Context { now, apps: &apps, server: &server, blobs: &blobs, draining: false };
        let ask = play_ask(Some(Choice::default()));
        let asker = SessionRef::new(WorkerId(0), ConnId { slot: 1, generation: 0 });
        let parts = (config(2, true), anchor(now.mono), "192.0.2.1:5000".parse().unwrap());
        let session = RtcSession::new(&ctx, parts, asker, ask, Seed::from_number(2)).unwrap();
        let of_page = Config { takes_changes: true, ..Config::clone(&config(1, false)) };
        assert!(matches!(of_page.ice, IceMode::Full(_)));
        let page = Peer::new(now.mono, Arc::new(of_page), anchor(now.mono), Seed::from_number(1)).unwrap();
        let tracks = tracks(h264(0x42));
        Self { now, apps, server, blobs, session, page, tracks }
    }

    /// Makes a bench whose page has received the offer of the stream.
    fn offered() -> (Self, Description) {
        let mut bench = Self::asking();
        bench.verdict(Handle::ONLY);
        let offer = bench.offer().unwrap();
        (bench, offer)
    }

    /// Makes a bench whose page has answered, so that media flows.
    fn playing() -> Self {
        let (mut bench, offer) = Self::offered();
        bench.answer(&offer);
        bench.session.connected = true;
        bench.events();
        bench
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut RtcSession, &Context<'_>) -> T) -> T {
        let Self { now, apps, server, blobs, session, .. } = self;
        act(session, &Context { now: *now, apps, server, blobs, draining: false })
    }

    fn events(&mut self) -> Vec<Event> {
        self.with(|session, ctx| std::iter::from_fn(|| session.poll_event(ctx)).collect())
    }

    /// The offer that the session makes now.
    fn offer(&mut self) -> Option<Description> {
        self.events().iter().find_map(offer_of)
    }

    fn say(&mut self, said: ToSession) {
        let (from, message) = (self.session.asker.session, Message::new(said));
        self.with(|session, ctx| {
            session.handle_reply(ctx, Reply::Family(FamilyNews::Message { from, message }))
        });
    }

    /// Says, after a pause, which kinds the page wants.
    fn want(&mut self, name: &str, video: Option<bool>, audio: Option<bool>) {
        self.pass(pace::INTERVAL);
        self.say(ToSession::Want { name: name.to_owned(), video, audio });
    }

    fn answer(&mut self, offer: &Description) {
        let takes = |_: ::webrtc::SectionId, media: &sdp::Media| {
            let direction = offer.direction(media).reverse();
            Some(MediaPreference { direction, formats: media.rtp_formats().collect(), msid: None })
        };
        let answer = self.page.handle_offer(self.now.mono, offer, takes).unwrap().write();
        self.say(ToSession::Answer(Description::read(answer.as_bytes()).unwrap()));
    }

    fn verdict(&mut self, handle: Handle) {
        let tracks = self.tracks.clone();
        let news = SubscriptionNews::Verdict(Ok(&tracks));
        self.with(|session, ctx| session.handle_reply(ctx, Reply::Subscription(handle, news)));
    }

    fn news(&mut self, news: SubtrackNews<'_>) {
        let news = SubscriptionNews::Subtracks(news);
        self.with(|session, ctx| session.handle_reply(ctx, Reply::Subscription(Handle::ONLY, news)));
    }

    /// The streams that the session subscribes to now.
    fn asked(&mut self) -> Vec<(Handle, String)> {
        asked_in(self.events())
    }

    fn pass(&mut self, time: Duration) {
        self.now.mono += time;
        self.with(|session, ctx| session.handle_timeout(ctx));
    }
}

fn asked_in(events: Vec<Event>) -> Vec<(Handle, String)> {
    let asked = |event: Event| match event {
        Event::Subscription(handle, SubscriptionEvent::Subscribe(ask)) => {
            Some((handle, ask.key.id.to_string()))
        }
        _ => None,
    };
    events.into_iter().filter_map(asked).collect()
}

fn offer_of(event: &Event) -> Option<Description> {
    let Event::Family(FamilyEvent::Tell { message, .. }) = event else { return None };
    let Some(FromSession::Described(described)) = message.content::<FromSession>() else { return None };
    Some(Description::read(described.sdp.as_bytes()).unwrap())
}

/// The pauses and resumptions of a subscription.
fn pauses(events: &[Event], of: Handle) -> Vec<bool> {
    let pause = |event: &Event| match event {
        Event::Subscription(handle, SubscriptionEvent::Pause(pauses)) if *handle == of => Some(*pauses),
        _ => None,
    };
    events.iter().filter_map(pause).collect()
}

/// Returns two flags, for video and for audio, of the last selection of a subscription: true if the kind is
/// selected.
fn selected(events: &[Event], of: Handle) -> Option<[bool; 2]> {
    let select = |event: &Event| match event {
        Event::Subscription(handle, SubscriptionEvent::Select(selection)) if *handle == of => {
            Some([selection.video, selection.audio].map(|pick| pick != Pick::None))
        }
        _ => None,
    };
    events.iter().filter_map(select).next_back()
}

fn key(id: &str) -> StreamKey {
    StreamKey::new("live", id)
}

#[test]
fn a_viewer_whose_subtracks_left_before_its_answer_goes_on_with_its_own_stream() {
    let (mut bench, offer) = Bench::offered();
    bench.news(SubtrackNews::Room(&[key("ann")]));
    bench.news(SubtrackNews::Came(&key("ben")));
    bench.news(SubtrackNews::Left(&key("ann")));
    bench.news(SubtrackNews::Left(&key("ben")));
    assert!(bench.asked().is_empty());
    bench.answer(&offer);
    let asked: Vec<String> = bench.asked().into_iter().map(|(_, id)| id).collect();
    assert_eq!(asked, ["s"]);
    // If no news of the main track arrives, its own stream stays the only subscription.
    let (mut bench, offer) = Bench::offered();
    bench.news(SubtrackNews::Left(&key("ann")));
    bench.answer(&offer);
    assert!(bench.asked().is_empty() && matches!(bench.session.role, Role::Viewer(_)));
}

#[test]
fn subtracks_that_came_before_the_answer_are_joined_with_it() {
    let (mut bench, offer) = Bench::offered();
    bench.news(SubtrackNews::Room(&[key("s"), key("ann")]));
    bench.news(SubtrackNews::Came(&key("ben")));
    bench.news(SubtrackNews::Left(&key("ann")));
    bench.answer(&offer);
    let asked: Vec<String> = bench.asked().into_iter().map(|(_, id)| id).collect();
    assert_eq!(asked, ["s", "ben"]);
}

#[test]
fn a_stream_goes_on_while_the_page_does_not_answer_the_offer_of_others() {
    let mut bench = Bench::playing();
    bench.news(SubtrackNews::Room(&[key("s"), key("ann")]));
    let asked = bench.asked();
    let [(own, _), (ann, _)] = asked[..] else { panic!("{asked:?}") };
    bench.verdict(own);
    let events = bench.events();
    assert_eq!((pauses(&events, own), selected(&events, own)), (vec![], Some([true; 2])));
    bench.verdict(ann);
    let events = bench.events();
    assert_eq!(pauses(&events, ann), [true]);
    let offer = events.iter().find_map(offer_of).unwrap();
    assert_eq!(bench.session.describe_by, None);
    bench.pass(DESCRIBE_WAIT);
    let events = bench.events();
    assert!(!bench.session.closed && pauses(&events, own).is_empty());
    // A late answer begins the other streams.
    bench.answer(&offer);
    assert_eq!(pauses(&bench.events(), ann), [false]);
}

#[test]
fn a_page_that_is_sent_nothing_has_to_answer() {
    let (mut bench, offer) = Bench::offered();
    bench.news(SubtrackNews::Room(&[key("s"), key("ann")]));
    bench.answer(&offer);
    for (handle, _) in bench.asked() {
        bench.verdict(handle);
    }
    assert!(bench.offer().is_some() && !bench.session.closed);
    bench.pass(DESCRIBE_WAIT * 3);
    assert!(bench.session.closed, "it has not connected either");
}

#[test]
fn the_time_to_connect_begins_with_our_description() {
    let mut bench = Bench::asking();
    // The stream is fetched from its source first.
    bench.pass(Duration::from_secs(14));
    bench.verdict(Handle::ONLY);
    assert!(bench.offer().is_some());
    bench.pass(Duration::from_secs(14));
    bench.events();
    assert!(!bench.session.closed);
    bench.pass(Duration::from_secs(1));
    bench.events();
    assert!(bench.session.closed);
    // A stream that does not come is given up.
    let mut bench = Bench::asking();
    bench.pass(DESCRIBE_WAIT * 3);
    bench.events();
    assert!(bench.session.closed);
}

#[test]
fn what_a_page_wants_of_its_stream_is_heard_in_the_room_too() {
    let mut bench = Bench::playing();
    bench.want("s", Some(false), None);
    assert_eq!(selected(&bench.events(), Handle::ONLY), Some([false, true]));
    bench.news(SubtrackNews::Room(&[key("s"), key("ann")]));
    let asked = bench.asked();
    let [(own, _), (ann, _)] = asked[..] else { panic!("{asked:?}") };
    bench.verdict(own);
    assert_eq!(selected(&bench.events(), own), Some([false, true]));
    bench.verdict(ann);
    let offer = bench.offer().unwrap();
    bench.answer(&offer);
    let events = bench.events();
    assert_eq!((selected(&events, own), selected(&events, ann)), (Some([false, true]), Some([true; 2])));
    bench.want("s", Some(true), Some(false));
    assert_eq!(selected(&bench.events(), own), Some([true, false]));
}

#[test]
fn what_a_page_wants_before_its_answer_is_heard_with_it() {
    let (mut bench, offer) = Bench::offered();
    bench.want("s", Some(false), None);
    bench.news(SubtrackNews::Room(&[key("s"), key("ann")]));
    bench.want("ARDAMSaann", None, Some(false));
    bench.answer(&offer);
    let events = bench.events();
    assert_eq!(selected(&events, Handle::ONLY), Some([false, true]));
    let asked = asked_in(events);
    let [(own, _), (ann, _)] = asked[..] else { panic!("{asked:?}") };
    bench.verdict(own);
    assert_eq!(selected(&bench.events(), own), Some([false, true]));
    bench.verdict(ann);
    let offer = bench.offer().unwrap();
    bench.answer(&offer);
    assert_eq!(selected(&bench.events(), ann), Some([true, false]));
}

#[test]
fn what_a_page_wants_of_one_kind_leaves_the_other_as_it_was() {
    let mut bench = Bench::playing();
    let mut wants = |video, audio| {
        bench.want("ARDAMSvs", video, audio);
        selected(&bench.events(), Handle::ONLY)
    };
    assert_eq!(wants(None, Some(false)), Some([true, false]));
    assert_eq!(wants(Some(false), None), Some([false, false]));
    assert_eq!(wants(Some(true), None), Some([true, false]));
}

/// The number of changes to subscriptions: selections, subscriptions and their ends.
fn changes(events: &[Event]) -> usize {
    let is_change = |event: &&Event| {
        let Event::Subscription(_, event) = event else { return false };
        matches!(
            event,
            SubscriptionEvent::Select(_) | SubscriptionEvent::Subscribe(_) | SubscriptionEvent::Unsubscribe
        )
    };
    events.iter().filter(is_change).count()
}

#[test]
fn w_09_a_thousand_toggles_make_two_selections_and_the_last_wins() {
    let mut bench = Bench::playing();
    let toggle = |bench: &mut Bench, name: &str, on: bool| {
        bench.say(ToSession::Want { name: name.to_owned(), video: Some(on), audio: Some(!on) });
    };
    (0..1000).for_each(|n| toggle(&mut bench, "s", n % 2 == 0));
    let events = bench.events();
    assert_eq!((changes(&events), selected(&events, Handle::ONLY)), (1, Some([true, false])));
    bench.pass(pace::INTERVAL);
    let events = bench.events();
    assert_eq!((changes(&events), selected(&events, Handle::ONLY)), (1, Some([false, true])));
    bench.pass(pace::INTERVAL * 2);
    assert_eq!(changes(&bench.events()), 0);
    toggle(&mut bench, "s", true);
    assert_eq!(selected(&bench.events(), Handle::ONLY), Some([true, false]), "after a pause, at once");
    // The same in a room.
    bench.news(SubtrackNews::Room(&[key("s")]));
    let asked = bench.asked();
    let [(own, _)] = asked[..] else { panic!("{asked:?}") };
    bench.verdict(own);
    bench.pass(pace::INTERVAL * 2);
    bench.events();
    (0..1000).for_each(|n| toggle(&mut bench, "s", n % 2 == 0));
    assert_eq!(changes(&bench.events()), 1);
    bench.pass(pace::INTERVAL);
    let events = bench.events();
    assert_eq!((changes(&events), selected(&events, own)), (1, Some([false, true])));
}

#[test]
fn w_09_a_flood_of_commands_about_seats_moves_each_stream_once_in_an_interval() {
    let mut bench = Bench::asking();
    let limits = [("maxVideoTrackCount", "3"), ("maxAudioTrackCount", "3")];
    let app = crate::config::AppSettings::of(crate::protocol::schema(), "live", &limits).unwrap();
    bench.apps = Apps::from([("live".into(), Arc::new(app))]);
    let streams = ["a", "b", "c", "d", "e"];
    bench.events();
    bench.news(SubtrackNews::Room(&streams.map(key)));
    let asked = bench.asked();
    assert_eq!(asked.len(), 3);
    for (handle, _) in asked {
        bench.verdict(handle);
    }
    let offer = bench.offer().unwrap();
    bench.answer(&offer);
    bench.session.connected = true;
    bench.events();
    let flood = |bench: &mut Bench| {
        for n in 0..200 {
            bench.say(ToSession::LimitVideos(Some(n % 3)));
            bench.say(ToSession::Pin { name: streams[n % 5].to_owned(), pins: true });
            bench.say(ToSession::TurnOver(n % 4..n % 4 + 2));
            let (video, audio) = (Some(n % 2 == 0), Some(n % 2 == 0));
            bench.say(ToSession::Want { name: streams[n % 5].to_owned(), video, audio });
            bench.say(ToSession::Info);
        }
        bench.events().len()
    };
    // At most the effects of the first command, a selection of each stream, and the answers about the stream.
    let first = flood(&mut bench);
    assert!(first <= 16 + ANSWERS_MAX, "{first}");
    bench.pass(pace::INTERVAL);
    let later = bench.events();
    assert!((1..=16).contains(&changes(&later)), "{later:?}");
    // The commands that waited have taken effect.
    bench.say(ToSession::LimitVideos(Some(3)));
    bench.pass(pace::INTERVAL);
    bench.events();
    let Role::Room(room) = &mut bench.session.role else { panic!("a room") };
    assert!(!room.pace().waits());
}

#[test]
fn an_answer_that_comes_while_commands_wait_leaves_each_seat_to_one_stream() {
    let mut bench = Bench::asking();
    let limits = [("maxVideoTrackCount", "1"), ("maxAudioTrackCount", "1")];
    let app = crate::config::AppSettings::of(crate::protocol::schema(), "live", &limits).unwrap();
    bench.apps = Apps::from([("live".into(), Arc::new(app))]);
    bench.events();
    bench.news(SubtrackNews::Room(&["a", "b"].map(key)));
    let asked = bench.asked();
    let [(a, _)] = asked[..] else { panic!("{asked:?}") };
    bench.verdict(a);
    let offer = bench.offer().unwrap();
    bench.session.connected = true;
    bench.events();
    // The first command is carried out at once, the second one waits.
    bench.say(ToSession::Pin { name: "a".to_owned(), pins: true });
    bench.events();
    bench.say(ToSession::Pin { name: "b".to_owned(), pins: true });
    let Role::Room(room) = &mut bench.session.role else { panic!("a room") };
    assert!(room.pace().waits());
    assert!(asked_in(bench.events()).is_empty());
    bench.answer(&offer);
    let asked = bench.asked();
    assert!(
        matches!(&asked[..], [(_, name)] if name == "b"),
        "the pinned stream is subscribed to: {asked:?}"
    );
    let Role::Room(room) = &mut bench.session.role else { panic!("a room") };
    let (viewer, _) = room.viewer(a).unwrap();
    assert_eq!(viewer.video(), None, "its seat has another stream");
}
