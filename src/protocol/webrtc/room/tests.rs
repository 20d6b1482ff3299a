use std::time::Duration;

use ::webrtc::{Config, IceMode};
use crypto::Seed;
use media::Timescale;
use media::codec::{Codec, CodecConfig, opus, vp8, vp9};
use rtp::NtpAnchor;
use sdp::Description;
use serde_json::{Value, json};

use super::*;

fn tracks(epoch: u32, codecs: &[Codec]) -> Tracks {
    let track = |codec: &Codec| {
        #[expect(clippy::wildcard_enum_match_arm, reason = "a test")]
        let (id, config) = match codec {
            Codec::Vp8 => (TrackId::VIDEO, CodecConfig::Vp8(vp8::Config::default())),
            Codec::Vp9 => (
                TrackId::VIDEO,
                CodecConfig::Vp9(
                    vp9::Config::read(bytes::Bytes::from_static(&[1, 0, 0, 0, 0, 10, 0x82, 2, 2, 2, 0, 0]))
                        .unwrap(),
                ),
            ),
            _ => (TrackId::AUDIO, CodecConfig::Opus(opus::Config::of_channels(2).unwrap())),
        };
        Track::new(id, config, Timescale::MILLISECONDS)
    };
    Tracks::new(epoch, codecs.iter().map(track))
}

/// A room with its peer, and a page that accepts everything offered.
struct Bench {
    now: Instant,
    room: Room,
    peer: Peer,
    page: Peer,
    /// A codec that the page lacks.
    unknown: &'static str,
    offers: Vec<Description>,
}

impl Bench {
    fn new(choice: Choice) -> Self {
        Self::with(choice, Limits::NONE)
    }

    fn with(choice: Choice, limits: Limits) -> Self {
        let now = Instant::now();
        let identity = Arc::new(dtls::Identity::self_signed(&Seed::from_number(1)).unwrap());
        let peer = |ice, takes_changes, seed| {
            let config = Config { takes_changes, ..Config::new(ice, Arc::clone(&identity)) };
            let anchor = NtpAnchor::new(now, Duration::from_secs(1_790_000_000));
            Peer::new(now, Arc::new(config), anchor, Seed::from_number(seed)).unwrap()
        };
        Self {
            now,
            room: Room::new(choice, false, limits, Codecs::ALL),
            peer: peer(IceMode::Lite { config: Arc::default(), addresses: Vec::new() }, false, 1),
            page: peer(IceMode::Full(Arc::default()), true, 2),
            unknown: "",
            offers: Vec::new(),
        }
    }

    /// Makes a bench whose viewer has played only the stream `own`, with these codecs and wants.
    fn of_viewer(
        choice: Choice,
        limits: Limits,
        unknown: &'static str,
        wants: (bool, bool),
    ) -> (Self, Handle) {
        let mut bench = Self { unknown, ..Self::new(choice.clone()) };
        let tracks = Arc::new(tracks(1, &[Codec::Vp9, Codec::Opus]));
        let stream = negotiation::Shown { tracks: &tracks, codecs: Codecs::ALL, to_come: &[], id: "own" };
        let sections = negotiation::offered(stream);
        let mut first = FirstOffer::default();
        first.note(&sections);
        bench.send(&sections);
        bench.reply();
        let mut viewer = Viewer::new(bench.now, &mut bench.peer, &tracks);
        viewer.want(wants.0, wants.1);
        let room = Room::new(choice, false, limits, Codecs::ALL);
        let sections = (bench.peer.sections(), bench.peer.offered_sections());
        let (room, handle) = room.of_viewer(&"own".into(), Box::new(viewer), first, sections).unwrap();
        bench.room = room;
        let handle = handle.unwrap();
        bench.room.take_tracks(handle, &tracks, Codecs::ALL);
        (bench, handle)
    }

    fn selected(&mut self, handle: Handle) -> [bool; 2] {
        let selection = self.room.viewer(handle).unwrap().0.selection();
        [selection.video, selection.audio].map(|pick| pick != crate::hub::Pick::None)
    }

    /// Asserts that no payload type has had two meanings.
    fn check_numbers(&self) {
        let mut known = BTreeMap::new();
        for format in self.offers.iter().flat_map(|offer| &offer.media).flat_map(sdp::Media::rtp_formats) {
            let parts = (format.rtpmap.clone(), format.parameters.clone());
            let first = known.entry(format.payload_type()).or_insert_with(|| parts.clone());
            assert_eq!(*first, parts);
        }
    }

    fn came(&mut self, id: &str, codecs: &[Codec]) -> Option<Handle> {
        let handle = self.room.came(&id.into())?;
        self.room.take_tracks(handle, &tracks(1, codecs), Codecs::ALL);
        Some(handle)
    }

    /// Makes the next offer and answers it. Returns the streams that begin, or `None` without an offer.
    fn negotiate(&mut self) -> Option<Vec<Handle>> {
        self.offer()?;
        Some(self.answer())
    }

    fn offer(&mut self) -> Option<()> {
        let sections = self.room.poll_offer()?;
        self.send(&sections);
        Some(())
    }

    fn send(&mut self, sections: &[(MediaKind, MediaPreference)]) {
        let offer = self.peer.offer(sections).unwrap().write();
        self.offers.push(Description::read(offer.as_bytes()).unwrap());
    }

    fn answer(&mut self) -> Vec<Handle> {
        self.reply();
        self.room.answered(self.now, &mut self.peer)
    }

    fn reply(&mut self) {
        let offer = self.offers.last().unwrap();
        let takes = |_: SectionId, media: &sdp::Media| {
            let direction = offer.direction(media).reverse();
            let formats: Vec<Format> =
                media.rtp_formats().filter(|format| format.rtpmap.encoding != self.unknown).collect();
            (!formats.is_empty()).then_some(MediaPreference { direction, formats, msid: None })
        };
        let answer = self.page.handle_offer(self.now, offer, takes).unwrap().write();
        let answer = Description::read(answer.as_bytes()).unwrap();
        self.peer.handle_answer(self.now, &answer).unwrap();
    }

    /// The names of the tracks of the last offer.
    fn names(&self) -> Vec<String> {
        negotiation::names(self.offers.last().unwrap()).into_iter().map(|(_, name)| name).collect()
    }
}

const BOTH: [Codec; 2] = [Codec::Vp8, Codec::Opus];

#[test]
fn an_empty_room_is_offered_and_every_change_once() {
    let mut bench = Bench::new(Choice::default());
    assert_eq!(bench.negotiate(), Some(vec![]));
    assert_eq!(bench.negotiate(), None);
    let ann = bench.came("ann", &BOTH).unwrap();
    assert_eq!(bench.came("ann", &BOTH), None);
    assert_eq!(bench.negotiate(), Some(vec![ann]));
    assert_eq!(bench.names(), ["ARDAMSaann", "ARDAMSvann"]);
    assert_eq!(bench.negotiate(), None);
    // One or both tracks of this stream begin later.
    let ben = bench.room.came(&"ben".into()).unwrap();
    assert_eq!(bench.negotiate(), None, "its verdict is to come");
    bench.room.take_tracks(ben, &tracks(1, &[Codec::Opus]), Codecs::ALL);
    assert_eq!(bench.negotiate(), Some(vec![ben]));
    bench.room.take_tracks(ben, &tracks(2, &BOTH), Codecs::ALL);
    assert_eq!(bench.negotiate(), Some(vec![ben]));
    assert_eq!(bench.names(), ["ARDAMSaann", "ARDAMSvann", "ARDAMSaben", "ARDAMSvben"]);
    for section in 1..=4 {
        assert!(bench.room.carries(SectionId(section)).is_some(), "{section}");
    }
    assert_eq!(bench.room.carries(SectionId(0)), None);
}

#[test]
fn what_changes_while_an_offer_is_open_is_offered_after_its_answer() {
    let mut bench = Bench::new(Choice::default());
    let ann = bench.came("ann", &BOTH).unwrap();
    bench.offer().unwrap();
    let ben = bench.came("ben", &BOTH).unwrap();
    assert_eq!(bench.room.left("ann"), Some(ann));
    assert!(bench.offer().is_none() && bench.room.is_open());
    assert_eq!(bench.answer(), []);
    assert_eq!(bench.negotiate(), Some(vec![ben]));
    assert_eq!(bench.names(), ["ARDAMSaben", "ARDAMSvben"]);
    // Places of streams that have left are reused once the peer knows that they are free.
    let cat = bench.came("cat", &BOTH).unwrap();
    assert_eq!(bench.negotiate(), Some(vec![cat]));
    assert_eq!(bench.offers.last().unwrap().media.len(), 5);
    assert_eq!(bench.names(), ["ARDAMSacat", "ARDAMSvcat", "ARDAMSaben", "ARDAMSvben"]);
}

#[test]
fn a_page_chooses_its_streams_and_their_tracks() {
    let list = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let mut some = Bench::new(Choice {
        only: list(&["ann", "ben"]),
        without: list(&["ben"]),
        is_off: true,
        ..Choice::default()
    });
    assert_eq!(["ben", "cat"].map(|id| some.came(id, &BOTH)), [None, None]);
    let ann = some.came("ann", &BOTH).unwrap();
    some.negotiate().unwrap();
    let selected = |bench: &mut Bench| {
        let selection = bench.room.viewer(ann).unwrap().0.selection();
        [selection.video, selection.audio].map(|pick| pick != crate::hub::Pick::None)
    };
    assert_eq!(selected(&mut some), [false, false]);
    assert_eq!(some.room.want("ARDAMSvann", Some(true), None), Some(ann));
    assert_eq!(selected(&mut some), [true, false]);
    assert_eq!(some.room.want("ann", None, Some(true)), Some(ann));
    assert_eq!(selected(&mut some), [true, true]);
    assert_eq!(some.room.want("nobody", Some(true), None), None);
}

#[test]
fn another_codec_begins_at_another_place_and_a_room_is_bounded() {
    let mut bench = Bench::new(Choice::default());
    let ann = bench.came("ann", &BOTH).unwrap();
    bench.negotiate().unwrap();
    bench.room.begin_anew(ann, &tracks(2, &[Codec::Vp9, Codec::Opus]), Codecs::ALL);
    assert_eq!(bench.negotiate(), Some(vec![ann]));
    let offer = bench.offers.last().unwrap();
    assert_eq!(offer.media.iter().filter(|media| media.is_rejected()).count(), 2);
    assert!(offer.write().contains("VP9/90000"));
    for n in 1..STREAMS_MAX + 20 {
        bench.came(&n.to_string(), &BOTH);
    }
    assert_eq!(bench.room.members.len(), STREAMS_MAX);
    let began = bench.negotiate().unwrap();
    assert_eq!(began.len(), STREAMS_MAX - 1);
    assert!(bench.offers.last().unwrap().media.len() <= ::webrtc::OFFERED_SECTIONS_MAX);
    let text = bench.offers.last().unwrap().write();
    assert!(text.len() < sdp::limits::BYTES_MAX, "{}", text.len());
}

#[test]
fn a_stream_beyond_the_bound_is_played_once_another_has_left() {
    let mut bench = Bench::new(Choice::default());
    for n in 0..STREAMS_MAX + 3 {
        bench.came(&format!("s{n}"), &BOTH);
    }
    let waits = |n: usize| Arc::<str>::from(format!("s{}", STREAMS_MAX + n));
    assert_eq!(bench.room.came(&waits(2)), None, "it waits already");
    let step = |bench: &mut Bench| bench.room.poll_step(bench.now, &mut bench.peer);
    assert!(step(&mut bench).is_none());
    // The first of those that wait leaves, and two others make room.
    assert_eq!(bench.room.left(&waits(0)), None);
    assert!(bench.room.left("s3").is_some() && bench.room.left("s4").is_some());
    for n in [1, 2] {
        let Some(Step::Subscribe(_, id)) = step(&mut bench) else { panic!("no subscription") };
        assert_eq!(id, waits(n));
    }
    assert!(step(&mut bench).is_none());
    assert_eq!(bench.room.members.len(), STREAMS_MAX);
}

#[test]
fn a_stream_that_found_no_place_gets_one_when_others_have_left() {
    let mut bench = Bench::new(Choice::default());
    let ann = bench.came("ann", &BOTH).unwrap();
    bench.negotiate().unwrap();
    // An offer has no section left for audio or video.
    while bench.room.places.len() < ::webrtc::OFFERED_SECTIONS_MAX {
        let kind = MediaKind::Other("text".to_owned());
        bench.room.places.push(Place { kind, holder: Holder::Free });
    }
    let is_used = |place: &&Place| matches!(place.holder, Holder::Track(..));
    let ben = bench.came("ben", &BOTH).unwrap();
    assert_eq!(bench.room.places.iter().filter(is_used).count(), 2, "no place");
    assert_eq!(bench.negotiate(), None);
    assert_eq!(bench.room.left("ann"), Some(ann));
    assert_eq!(bench.negotiate(), Some(vec![]), "its places are withdrawn");
    assert_eq!(bench.negotiate(), Some(vec![ben]));
    assert_eq!(bench.names(), ["ARDAMSaben", "ARDAMSvben"]);
    assert_eq!(bench.negotiate(), None);
}

#[test]
fn a_large_room_is_turned_over_page_by_page() {
    let mut bench = Bench::new(Choice::default());
    let handles: Vec<Handle> = ["a", "b", "c", "d"].iter().map(|id| bench.came(id, &BOTH).unwrap()).collect();
    bench.negotiate().unwrap();
    let shown = |bench: &mut Bench| -> Vec<bool> {
        let mut video = |handle: &Handle| bench.room.viewer(*handle).unwrap().0.selection().video;
        handles.iter().map(|handle| video(handle) != crate::hub::Pick::None).collect()
    };
    assert_eq!(shown(&mut bench), [true; 4]);
    bench.room.turn_over(1..3);
    assert_eq!(shown(&mut bench), [false, true, true, false]);
    // A wanted stream outside the window is still not shown.
    bench.room.want("a", Some(true), None);
    bench.room.want("b", Some(false), None);
    assert_eq!(shown(&mut bench), [false, false, true, false]);
    let list: Value = serde_json::from_str(&bench.room.assignments("r")).unwrap();
    assert_eq!(list["payload"], json!([{"videoLabel": "c", "trackId": "c"}]));
    assert_eq!((&list["eventType"], &list["streamId"]), (&"VIDEO_TRACK_ASSIGNMENT_LIST".into(), &"r".into()));
    bench.room.left("a");
    bench.room.turn_over(0..2);
    assert_eq!(bench.room.assignments("r").matches("trackId").count(), 1);
}

/// A bench whose subscriptions follow the room's steps.
impl Bench {
    fn seats(video: usize, audio: usize) -> Self {
        let mut bench = Self::with(Choice::default(), Limits { video: Some(video), audio: Some(audio) });
        assert_eq!(bench.negotiate(), Some(vec![]));
        bench
    }

    /// Adds a stream, with these codecs if it is subscribed to.
    fn enters(&mut self, id: &str, codecs: &[Codec]) {
        let handle = self.room.came(&id.into());
        if let Some(handle) = handle {
            self.room.take_tracks(handle, &tracks(1, codecs), Codecs::ALL);
        }
        self.steps(codecs);
    }

    /// Takes the room's pending steps. Returns a letter and a stream for each.
    fn steps(&mut self, codecs: &[Codec]) -> Vec<String> {
        let mut taken = Vec::new();
        while let Some(step) = self.room.poll_step(self.now, &mut self.peer) {
            let id = |room: &Room, handle: Handle| room.members[&handle].id.to_string();
            taken.push(match step {
                Step::Subscribe(handle, id) => {
                    self.room.take_tracks(handle, &tracks(1, codecs), Codecs::ALL);
                    format!("+{id}")
                }
                Step::Unsubscribe(handle) => format!("-{}", id(&self.room, handle)),
                Step::Begin(handle) => format!("b{}", id(&self.room, handle)),
                Step::Select(handle) => format!("s{}", id(&self.room, handle)),
            });
        }
        taken
    }

    fn speaks(&mut self, id: &str) -> Vec<String> {
        self.now += Duration::from_secs(3);
        self.room.speaks(self.now, id, 30);
        self.steps(&BOTH)
    }

    /// The streams of the videos, as listed to the page.
    fn shown(&self) -> Vec<String> {
        let list: Value = serde_json::from_str(&self.room.assignments("r")).unwrap();
        let place = |place: &Value| {
            format!("{}={}", place["videoLabel"].as_str().unwrap(), place["trackId"].as_str().unwrap())
        };
        list["payload"].as_array().unwrap().iter().map(place).collect()
    }

    fn heard(&mut self) -> Option<Vec<(String, String, u64)>> {
        let said: Value = serde_json::from_str(&self.room.poll_speakers(self.now, "r")?).unwrap();
        assert_eq!(
            (&said["eventType"], &said["payload"]),
            (&"AUDIO_TRACK_ASSIGNMENT".into(), &said["assignments"])
        );
        let of = |one: &Value| {
            let text = |name: &str| one[name].as_str().unwrap().to_owned();
            (text("audioLabel"), text("trackId"), one["audioLevel"].as_u64().unwrap())
        };
        Some(said["payload"].as_array().unwrap().iter().map(of).collect())
    }
}

#[test]
fn seats_are_offered_once_and_carry_who_speaks() {
    let mut bench = Bench::seats(2, 1);
    let offer = bench.offers.last().unwrap().clone();
    assert_eq!(bench.names(), ["ARDAMSaaudioTrack0", "ARDAMSvvideoTrack0", "ARDAMSvvideoTrack1"]);
    for codec in ["H264", "VP8", "VP9", "AV1", "H265", "opus"] {
        assert!(offer.write().contains(&format!("{codec}/")), "{codec}");
    }
    ["ann", "ben", "cat", "dan"].into_iter().for_each(|id| bench.enters(id, &BOTH));
    assert_eq!(bench.shown(), ["videoTrack0=ann", "videoTrack1=ben"]);
    // Participants without a seat are not subscribed to. One that speaks gets a seat without an offer, at a key frame
    // of its own.
    assert_eq!(bench.speaks("dan"), ["-ann", "+dan", "bdan"]);
    assert_eq!(bench.shown(), ["videoTrack0=dan", "videoTrack1=ben"]);
    assert_eq!(bench.speaks("ben"), ["bben", "sdan"]);
    assert_eq!(bench.speaks("dan"), ["sben", "bdan"]);
    assert_eq!(bench.shown(), ["videoTrack0=dan", "videoTrack1=ben"]);
    assert_eq!(bench.speaks("nobody"), [""; 0]);
    // A seat that becomes free goes to the last speaker without one.
    assert_eq!(bench.speaks("cat"), ["-ben", "+cat", "bcat", "sdan"]);
    let dan = bench.room.left("dan").unwrap();
    assert!(!bench.room.members.contains_key(&dan));
    assert_eq!(bench.steps(&BOTH), ["+ben", "bben"]);
    assert_eq!(bench.shown(), ["videoTrack0=ben", "videoTrack1=cat"]);
    assert_eq!(bench.room.left("ann"), None, "nobody was subscribed to it");
    assert_eq!(bench.negotiate(), None);
    for section in 1..=3 {
        assert!(bench.room.carries(SectionId(section)).is_some(), "{section}");
    }
}

#[test]
fn a_stream_without_video_keeps_no_seat_for_one() {
    let mut bench = Bench::seats(1, 1);
    bench.enters("ann", &[Codec::Opus]);
    bench.enters("ben", &BOTH);
    assert_eq!(bench.shown(), ["videoTrack0=ben"]);
    assert_eq!(bench.speaks("ann"), [""; 0]);
    assert_eq!(bench.shown(), ["videoTrack0=ben"]);
    // Tracks that the page does not want have no seat either.
    bench.room.want("ben", Some(false), None);
    assert_eq!(bench.steps(&BOTH), ["-ben"]);
    assert_eq!(bench.shown(), ["videoTrack0="]);
    bench.room.want("ben", Some(true), None);
    assert_eq!(bench.steps(&BOTH), ["+ben", "bben"]);
}

#[test]
fn what_the_page_pins_stays_whoever_speaks() {
    let mut bench = Bench::seats(2, 0);
    ["ann", "ben", "cat", "dan"].into_iter().for_each(|id| bench.enters(id, &BOTH));
    assert!(bench.room.pin("cat", true));
    assert_eq!(bench.steps(&BOTH), ["-ben", "+cat", "bcat"]);
    bench.speaks("dan");
    bench.speaks("ben");
    assert_eq!(bench.shown(), ["videoTrack0=ben", "videoTrack1=cat"]);
    assert!(bench.room.pin("ARDAMSvcat", false));
    bench.speaks("dan");
    assert_eq!(bench.shown(), ["videoTrack0=ben", "videoTrack1=dan"]);
    // The page shows the second and the third stream of the room. They get the two seats, and a stream that speaks
    // does not displace them.
    bench.room.turn_over(1..3);
    bench.steps(&BOTH);
    assert_eq!(bench.shown(), ["videoTrack0=ben", "videoTrack1=cat"]);
    bench.speaks("ann");
    assert_eq!(bench.shown(), ["videoTrack0=ben", "videoTrack1=cat"]);
}

#[test]
fn a_page_has_fewer_videos_and_no_more_than_the_application_lets_it() {
    let mut bench = Bench::seats(3, 3);
    ["ann", "ben", "cat"].into_iter().for_each(|id| bench.enters(id, &BOTH));
    bench.room.limit_videos(Some(1));
    bench.steps(&BOTH);
    assert_eq!(bench.shown(), ["videoTrack0=ann"]);
    // The places of the other streams are withdrawn, and offered again.
    assert!(bench.negotiate().is_some());
    assert_eq!(bench.offers.last().unwrap().media.iter().filter(|media| media.is_rejected()).count(), 2);
    bench.room.limit_videos(Some(100));
    bench.steps(&BOTH);
    assert_eq!(bench.negotiate().unwrap().len(), 2);
    assert_eq!(bench.shown(), ["videoTrack0=ann", "videoTrack1=ben", "videoTrack2=cat"]);
    // If each stream has places of its own, the limit is on the places in use.
    let mut bench = Bench::new(Choice::default());
    let handles = ["a", "b", "c"].map(|id| bench.came(id, &BOTH).unwrap());
    bench.negotiate().unwrap();
    bench.room.limit_videos(Some(2));
    bench.steps(&BOTH);
    assert_eq!(bench.shown(), ["a=a", "b=b"]);
    assert_eq!(bench.speaks("c"), ["sa", "sc"]);
    assert_eq!(bench.shown(), ["b=b", "c=c"]);
    let video = |bench: &mut Bench, at: usize| bench.room.viewer(handles[at]).unwrap().0.selection().video;
    assert_eq!([0, 1, 2].map(|at| video(&mut bench, at) == crate::hub::Pick::None), [true, false, false]);
    bench.room.limit_videos(None);
    assert_eq!(bench.shown().len(), 3);
    assert_eq!(bench.negotiate(), None);
}

#[test]
fn a_page_hears_who_speaks_twice_a_second_at_most() {
    let of = |label: &str, id: &str, level| (label.to_owned(), id.to_owned(), level);
    let mut bench = Bench::seats(1, 2);
    assert_eq!(bench.heard(), None);
    ["ann", "ben"].into_iter().for_each(|id| bench.enters(id, &BOTH));
    bench.speaks("ben");
    assert_eq!(bench.heard().unwrap(), [of("audioTrack0", "ann", 0), of("audioTrack1", "ben", 194)]);
    bench.room.speaks(bench.now, "ben", SILENCE);
    assert_eq!(bench.heard(), None);
    bench.now = bench.room.poll_timeout(true).unwrap();
    assert_eq!(bench.heard().unwrap()[1], of("audioTrack1", "ben", 0));
    assert_eq!((bench.heard(), bench.room.loud.poll_timeout()), (None, None));
    // Without seats, streams that speak are listed, and streams that have stopped are listed once.
    let mut bench = Bench::new(Choice::default());
    ["ann", "ben", "cat"].into_iter().for_each(|id| bench.enters(id, &BOTH));
    bench.speaks("cat");
    assert_eq!(bench.heard().unwrap(), [of("cat", "cat", 194)]);
    bench.room.speaks(bench.now, "cat", SILENCE);
    bench.speaks("ann");
    assert_eq!(bench.heard().unwrap(), [of("ann", "ann", 194), of("cat", "cat", 0)]);
    bench.speaks("ann");
    assert_eq!(bench.heard().unwrap(), [of("ann", "ann", 194)]);
}

#[test]
fn profiles_have_payload_types_and_levels_have_none_of_their_own() {
    let form = |profile: &str| {
        let mut format = ::webrtc::offered_formats(Codec::H264, *PAYLOAD_TYPES.start()).remove(0);
        format.parameters.set("profile-level-id", profile);
        format
    };
    let mut numbers = Numbers::default();
    let mut give = |profile: &str| {
        let mut format = form(profile);
        let given = numbers.give(&mut format);
        given.then(|| {
            (format.payload_type().number(), format.parameters.get("profile-level-id").unwrap().to_owned())
        })
    };
    let first = give("64001f").unwrap();
    // The parameters of a payload type are the same everywhere.
    assert!(["640020", "640028", "640033"].iter().all(|profile| give(profile).as_ref() == Some(&first)));
    assert_ne!(give("42e01f").unwrap().0, first.0);
}

#[test]
fn a_page_that_is_turned_back_ends_streams_first_and_tries_refused_ones_again() {
    let mut bench = Bench::seats(2, 0);
    ["a", "b", "c", "d"].into_iter().for_each(|id| bench.enters(id, &BOTH));
    let turn = |bench: &mut Bench, window| {
        bench.room.turn_over(window);
        bench.steps(&BOTH).into_iter().filter(|step| step.starts_with(['+', '-'])).collect::<Vec<_>>()
    };
    assert_eq!(turn(&mut bench, 2..4), ["-a", "-b", "+c", "+d"]);
    assert_eq!(turn(&mut bench, 0..2), ["-c", "-d", "+a", "+b"]);
    // There is no room for a stream: it stays in the room, and is tried again when another ends, or after a while.
    let a = bench.room.ids["a"];
    bench.room.refuse(bench.now, a);
    assert!(bench.steps(&BOTH).is_empty() && bench.room.poll_offer().is_none());
    assert_eq!(turn(&mut bench, 0..1), [""; 0]);
    bench.room.left("b");
    let steps = bench.steps(&BOTH);
    assert!(steps.contains(&"+a".to_owned()), "{steps:?}");
    bench.room.refuse(bench.now, a);
    assert!(bench.steps(&BOTH).is_empty());
    bench.now = bench.room.poll_timeout(false).unwrap();
    assert_eq!(bench.steps(&BOTH), ["+a", "ba"]);
    assert_eq!(bench.room.poll_timeout(false), None);
}

/// Streams come, speak, are pinned and leave at random: no two seats have the same stream, all seats are taken while
/// there are streams, and exactly the streams with a seat are subscribed to.
#[test]
fn seats_agree_with_subscriptions_whatever_happens() {
    for seed in 0..40 {
        let mut random = Seed::from_number(seed).random();
        let mut bench = Bench::seats(2, 3);
        let mut live: std::collections::BTreeSet<String> = std::collections::BTreeSet::new();
        for _ in 0..120 {
            let [act, who, ..] = random.u64().to_be_bytes();
            let id = format!("s{}", who % 9);
            match act % 7 {
                0 | 1 => {
                    bench.enters(&id, &BOTH);
                    live.insert(id);
                }
                2 => {
                    bench.room.left(&id);
                    live.remove(&id);
                }
                3 => drop(bench.room.pin(&id, who > 128)),
                4 => bench.room.limit_videos(Some(usize::from(who % 4))),
                5 => bench.room.turn_over(usize::from(who % 5)..usize::from(who % 5) + 2),
                _ => drop(bench.speaks(&id)),
            }
            bench.steps(&BOTH);
            bench.negotiate();
            bench.steps(&BOTH);
            let seated = |kind| {
                let holders = bench.room.seats.holders(kind).unwrap();
                holders
                    .map(|holder| holder.map(|handle| bench.room.members[&handle].id.to_string()))
                    .collect::<Vec<_>>()
            };
            for kind in [TrackKind::Video, TrackKind::Audio] {
                let seats = seated(kind);
                let named: Vec<&String> = seats.iter().flatten().collect();
                let mut once = named.clone();
                once.sort();
                once.dedup();
                assert_eq!(once.len(), named.len(), "{seed}: {seats:?}");
                assert_eq!(named.len(), seats.len().min(live.len()), "{seed}: {seats:?} of {live:?}");
            }
            for (handle, member) in &bench.room.members {
                let is_seated = bench.room.seats.needs(*handle);
                assert_eq!(member.state == Subscribed::Yes, is_seated, "{seed}: {}", member.id);
                assert_eq!(member.viewer.is_some(), is_seated, "{seed}: {}", member.id);
            }
        }
    }
}

// ---- viewers that were there before the room

#[test]
fn the_stream_played_so_far_goes_on_in_its_sections() {
    let (mut bench, own) = Bench::of_viewer(Choice::default(), Limits::NONE, "", (true, true));
    assert_eq!([0, 1].map(|n| bench.room.carries(SectionId(n)).map(|(handle, _)| handle)), [Some(own); 2]);
    let ann = bench.came("ann", &BOTH).unwrap();
    assert_eq!(bench.negotiate(), Some(vec![own, ann]));
    assert_eq!(bench.names(), ["ARDAMSaown", "ARDAMSvown", "ARDAMSaann", "ARDAMSvann"]);
    bench.check_numbers();
    // The section of the stream that has left stays for the transport.
    assert_eq!(bench.room.left("own"), Some(own));
    bench.negotiate().unwrap();
    let rejected: Vec<bool> =
        bench.offers.last().unwrap().media.iter().map(sdp::Media::is_rejected).collect();
    assert_eq!(rejected, [false, true, false, false]);
}

#[test]
fn a_choice_without_the_stream_played_so_far_ends_it_and_no_other_offer_can_follow_one_of_the_client() {
    let without = Choice { without: vec!["own".to_owned()], ..Choice::default() };
    let mut bench = Bench::new(without.clone());
    let tracks = Arc::new(tracks(1, &BOTH));
    let viewer = |bench: &mut Bench| Box::new(Viewer::new(bench.now, &mut bench.peer, &tracks));
    let room = |choice| Room::new(choice, false, Limits::NONE, Codecs::ALL);
    let client = (bench.peer.sections().to_vec(), bench.peer.offered_sections());
    let viewer_of_client = viewer(&mut bench);
    let none = room(Choice::default()).of_viewer(
        &"own".into(),
        viewer_of_client,
        FirstOffer::default(),
        (&client.0, client.1),
    );
    assert!(none.is_none());
    let sections = negotiation::offered(negotiation::Shown {
        tracks: &tracks,
        codecs: Codecs::ALL,
        to_come: &[],
        id: "own",
    });
    let mut first = FirstOffer::default();
    first.note(&sections);
    bench.send(&sections);
    bench.reply();
    let viewer = viewer(&mut bench);
    let agreed = (bench.peer.sections(), bench.peer.offered_sections());
    let (room, handle) = room(without).of_viewer(&"own".into(), viewer, first, agreed).unwrap();
    assert_eq!(handle, None);
    bench.room = room;
    bench.came("ann", &BOTH).unwrap();
    bench.negotiate().unwrap();
    let media = &bench.offers.last().unwrap().media;
    assert_eq!([media[0].is_rejected(), media[1].is_rejected()], [false, true]);
    assert_eq!(bench.names(), ["ARDAMSaann", "ARDAMSvann"]);
}

#[test]
fn a_section_that_the_client_has_rejected_does_not_keep_it_from_its_room() {
    let (mut bench, own) = Bench::of_viewer(Choice::default(), Limits::NONE, "VP9", (true, true));
    assert_eq!(bench.room.carries(SectionId(1)), None);
    let ann = bench.came("ann", &BOTH).unwrap();
    let began = bench.negotiate().unwrap();
    assert!(began.contains(&ann), "{began:?}");
    assert!(bench.room.carries(SectionId(0)).is_some_and(|(handle, _)| handle == own));
    bench.check_numbers();
    let places = bench.offers.last().unwrap().media.len();
    bench.came("ben", &[Codec::Vp8]).unwrap();
    bench.negotiate().unwrap();
    assert_eq!(bench.offers.last().unwrap().media.len(), places, "the rejected one is used again");
    bench.check_numbers();
    // The client rejected the first section: the second one carries the transport, and no place before it is used.
    let (mut bench, own) = Bench::of_viewer(Choice::default(), Limits::NONE, "opus", (true, true));
    assert!(bench.room.carries(SectionId(1)).is_some_and(|(handle, _)| handle == own));
    bench.came("ann", &[Codec::Vp8]).unwrap();
    bench.negotiate().unwrap();
    bench.unknown = "";
    bench.came("ben", &[Codec::Opus]).unwrap();
    bench.room.left("own");
    bench.negotiate().unwrap();
    let rejected: Vec<bool> =
        bench.offers.last().unwrap().media.iter().map(sdp::Media::is_rejected).collect();
    assert_eq!(rejected[..2], [true, false]);
    assert_eq!(bench.names(), ["ARDAMSvann", "ARDAMSaben"]);
}

#[test]
fn what_the_page_chose_of_the_stream_played_so_far_holds_in_the_room() {
    let (mut bench, own) = Bench::of_viewer(Choice::default(), Limits::NONE, "", (false, true));
    assert_eq!(bench.selected(own), [false, true]);
    let ann = bench.came("ann", &BOTH).unwrap();
    bench.negotiate().unwrap();
    assert_eq!((bench.selected(own), bench.selected(ann)), ([false, true], [true, true]));
    assert_eq!(bench.room.want("own", Some(true), Some(true)), Some(own));
    assert_eq!(bench.selected(own), [true, true]);
    let off = Choice { is_off: true, ..Choice::default() };
    let (mut bench, own) = Bench::of_viewer(off, Limits::NONE, "", (true, true));
    let ann = bench.came("ann", &BOTH).unwrap();
    bench.negotiate().unwrap();
    assert_eq!((bench.selected(own), bench.selected(ann)), ([true, true], [false, false]));
}

#[test]
fn a_stream_that_is_waited_for_delays_no_other() {
    let mut bench = Bench::new(Choice::default());
    let ann = bench.came("ann", &BOTH).unwrap();
    let ben = bench.room.came(&"ben".into()).unwrap();
    assert_eq!(bench.negotiate(), None, "its verdict is to come");
    bench.room.hold(ben);
    assert_eq!(bench.negotiate(), Some(vec![ann]));
    bench.room.take_tracks(ben, &tracks(1, &BOTH), Codecs::ALL);
    assert_eq!(bench.negotiate(), Some(vec![ben]));
}

#[test]
fn what_a_page_wants_of_a_stream_that_is_still_to_come_is_kept_for_it() {
    let mut bench = Bench::new(Choice::default());
    assert_eq!(bench.room.want("ARDAMSvann", Some(false), None), None);
    for n in 0..2 * STREAMS_MAX {
        assert_eq!(bench.room.want(&n.to_string(), Some(false), None), None);
    }
    assert_eq!(bench.room.choice.wants.len(), STREAMS_MAX);
    let ann = bench.came("ann", &BOTH).unwrap();
    bench.negotiate().unwrap();
    assert_eq!(bench.selected(ann), [false, true]);
}

#[test]
fn seats_come_behind_the_sections_of_a_viewer_with_numbers_of_their_own() {
    let limits = Limits { video: Some(1), audio: Some(1) };
    let (mut bench, own) = Bench::of_viewer(Choice::default(), limits, "", (true, true));
    // Until the page has agreed on the seats, the stream is sent where it was.
    let is_sent = |bench: &Bench| bench.room.carries(SectionId(0)).is_some_and(|(handle, _)| handle == own);
    bench.steps(&BOTH);
    assert!(is_sent(&bench) && bench.room.viewer(own).is_some());
    bench.offer().unwrap();
    assert!(is_sent(&bench) && bench.selected(own) == [true, true]);
    assert_eq!(bench.answer(), [own]);
    assert!(!is_sent(&bench) && bench.room.viewer(own).is_some());
    bench.negotiate().unwrap();
    assert_eq!(bench.names(), ["ARDAMSaaudioTrack0", "ARDAMSvvideoTrack0"]);
    bench.steps(&BOTH);
    assert_eq!(bench.shown(), ["videoTrack0=own"]);
    bench.check_numbers();
}
