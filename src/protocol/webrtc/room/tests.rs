use std::time::Duration;

use ::webrtc::{Config, IceMode};
use crypto::Seed;
use media::Timescale;
use media::codec::{Codec, CodecConfig, opus, vp8, vp9};
use rtp::NtpAnchor;
use sdp::Description;

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

/// A room with its peer, and a page that takes all that it is offered.
struct Bench {
    now: Instant,
    room: Room,
    peer: Peer,
    page: Peer,
    offers: Vec<Description>,
}

impl Bench {
    fn new(choice: Choice) -> Self {
        let now = Instant::now();
        let identity = Arc::new(dtls::Identity::self_signed(&Seed::from_number(1)).unwrap());
        let peer = |ice, takes_changes, seed| {
            let config = Config { takes_changes, ..Config::new(ice, Arc::clone(&identity)) };
            let anchor = NtpAnchor::new(now, Duration::from_secs(1_790_000_000));
            Peer::new(now, Arc::new(config), anchor, Seed::from_number(seed)).unwrap()
        };
        Self {
            now,
            room: Room::new(choice, false),
            peer: peer(IceMode::Lite { config: Arc::default(), addresses: Vec::new() }, false, 1),
            page: peer(IceMode::Full(Arc::default()), true, 2),
            offers: Vec::new(),
        }
    }

    fn came(&mut self, id: &str, codecs: &[Codec]) -> Option<Handle> {
        let handle = self.room.came(&id.into())?;
        self.room.take_tracks(handle, &tracks(1, codecs), Codecs::ALL);
        Some(handle)
    }

    /// The next offer is made and answered: the streams that begin, or `None` without an offer.
    fn negotiate(&mut self) -> Option<Vec<Handle>> {
        self.offer()?;
        Some(self.answer())
    }

    fn offer(&mut self) -> Option<()> {
        let sections = self.room.poll_offer()?;
        let offer = self.peer.offer(&sections).unwrap().write();
        self.offers.push(Description::read(offer.as_bytes()).unwrap());
        Some(())
    }

    fn answer(&mut self) -> Vec<Handle> {
        let offer = self.offers.last().unwrap();
        let takes = |_: SectionId, media: &sdp::Media| {
            let direction = offer.direction(media).reverse();
            Some(MediaPreference { direction, formats: media.rtp_formats().collect(), msid: None })
        };
        let answer = self.page.handle_offer(self.now, offer, takes).unwrap().write();
        let answer = Description::read(answer.as_bytes()).unwrap();
        self.peer.handle_answer(self.now, &answer).unwrap();
        self.room.answered(self.now, &mut self.peer)
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
    // Its tracks come later, or one of them.
    let ben = bench.room.came(&"ben".into()).unwrap();
    assert_eq!(bench.negotiate(), None, "its verdict is to come");
    bench.room.take_tracks(ben, &tracks(1, &[Codec::Opus]), Codecs::ALL);
    assert_eq!(bench.negotiate(), Some(vec![ben]));
    bench.room.take_tracks(ben, &tracks(2, &BOTH), Codecs::ALL);
    assert_eq!(bench.negotiate(), Some(vec![]));
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
    // The places of who left are taken when the peer knows that they are free.
    let cat = bench.came("cat", &BOTH).unwrap();
    assert_eq!(bench.negotiate(), Some(vec![cat]));
    assert_eq!(bench.offers.last().unwrap().media.len(), 5);
    assert_eq!(bench.names(), ["ARDAMSacat", "ARDAMSvcat", "ARDAMSaben", "ARDAMSvben"]);
}

#[test]
fn a_page_chooses_its_streams_and_their_tracks() {
    let list = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    let mut some = Bench::new(Choice { only: list(&["ann", "ben"]), without: list(&["ben"]), is_off: true });
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
    // Wanting one does not put it into the window.
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
