//! The cost of ending a session or a stream depends only on its own table entries, so ending all of them takes time in
//! proportion to their number. Each case fills a table that peers can fill, once with a few entries and once with eight
//! times as many, and compares the processor times for emptying it. The ratio is 8 if each end costs only its own
//! entries, and 64 if each end searches the whole table.

use super::*;
use crate::hub::Selection;
use crate::mail::{Message, Progress, StreamEnd};
use crate::protocol::{FamilyEvent, PublishAsk, WantedBlob};

/// Number of table entries in the small run.
const FEW: usize = 1500;
/// The size of the large run, as a multiple of the small one.
const TIMES: usize = 8;
/// Maximum ratio of the two times, well below 64. It has some margin above 8 because the large run may exceed the
/// processor's caches.
const RATIO_MAX: f64 = 24.0;

/// Processor time of this thread in nanoseconds. The kernel updates it when a thread yields.
fn thread_nanos() -> u64 {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

impl Rig {
    /// A stream that is published here.
    fn stream(&mut self, number: u64) -> StreamId {
        let (stream, source) = (StreamId(number), WorkerId(0));
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        let (key, details) = (StreamKey::new("live", &number.to_string()), StreamDetails::default());
        let up = ToWorker::StreamUp { stream, key, source, ingest: Ingest::PULL, details, settings };
        self.worker.handle_mail(self.now, up);
        stream
    }

    fn sessions(&mut self, count: usize) -> Vec<ConnId> {
        (0..count).map(|_| self.connect().0).collect()
    }

    fn remove_all(&mut self, sessions: Vec<ConnId>) {
        for id in sessions {
            self.worker.remove(id, "left", false);
            while self.worker.poll_output().is_some() {}
        }
    }

    fn end_all(&mut self, streams: Vec<StreamId>) {
        for stream in streams {
            self.worker.handle_mail(self.now, ToWorker::StreamDown { stream, end: StreamEnd::Stopped });
            while self.worker.poll_output().is_some() {}
        }
    }
}

/// The sessions or streams that leave.
enum Leaves {
    Sessions(Vec<ConnId>),
    Streams(Vec<StreamId>),
}

fn awaited(rig: &mut Rig, count: usize) -> Leaves {
    let sessions = rig.sessions(count / 8);
    for (at, id) in sessions.iter().enumerate() {
        (0..8).for_each(|n| {
            rig.worker.live.await_stream(&rig.worker.conns, *id, StreamKey::new("live", &format!("{at}-{n}")))
        });
    }
    assert_eq!(rig.worker.live.awaited.len(), count / 8 * 8);
    Leaves::Sessions(sessions)
}

fn awaited_by_all(rig: &mut Rig, count: usize) -> Leaves {
    let sessions = rig.sessions(count);
    sessions
        .iter()
        .for_each(|id| rig.worker.live.await_stream(&rig.worker.conns, *id, StreamKey::new("live", "later")));
    Leaves::Sessions(sessions)
}

fn held(rig: &mut Rig, count: usize) -> Leaves {
    let key = StreamKey::new("live", "started-by-viewers");
    rig.worker.live.holds.note_auto_start(vec![(key.clone(), true)]);
    let sessions = rig.sessions(count);
    for id in &sessions {
        let ask = PlayAsk {
            key: key.clone(),
            format: Format::find("flv", 0).unwrap(),
            params: Vec::new(),
            origin: String::new(),
            via: Vec::new(),
            takes_subtracks: false,
        };
        rig.worker.live.subscribe(&mut rig.worker.turn, &mut rig.worker.conns, *id, Handle::ONLY, ask);
    }
    assert_eq!(rig.worker.live.holds.waiting_for(&key).len(), count);
    Leaves::Sessions(sessions)
}

fn viewers_of_one(rig: &mut Rig, count: usize) -> Leaves {
    let sessions = rig.sessions(count);
    let format = Format::find("flv", 0).unwrap().select(Selection::default());
    for id in &sessions {
        rig.worker
            .live
            .attach(&mut rig.worker.turn, &mut rig.worker.conns, *id, Handle::ONLY, STREAM, format)
            .unwrap();
    }
    // Sessions leave from the middle outwards, so that a removal that searches a list from either end is slow.
    let (before, after) = sessions.split_at(count / 2);
    let (mut before, mut after) = (before.iter().rev(), after.iter());
    let outwards =
        std::iter::from_fn(|| Some([after.next(), before.next()]).filter(|pair| pair[0].is_some()));
    Leaves::Sessions(outwards.flatten().flatten().copied().collect())
}

fn blob_waiters(rig: &mut Rig, count: usize) -> Leaves {
    let sessions = rig.sessions(count);
    for id in &sessions {
        let (key, name) = (StreamKey::new("live", "s"), "s.m3u8".to_owned());
        let wanted = WantedBlob { key, name, sink: None, progress: Progress::default() };
        rig.worker.polled.await_blob(
            &mut rig.worker.turn,
            &mut rig.worker.conns,
            &rig.worker.live,
            *id,
            &wanted,
        );
    }
    Leaves::Sessions(sessions)
}

fn streams_with_sinks(rig: &mut Rig, count: usize) -> Leaves {
    let streams: Vec<StreamId> = (0..count).map(|n| rig.stream(n as u64 + 10)).collect();
    for stream in &streams {
        rig.worker.polled.note_sink(*stream, "hls", ConnId { slot: 0, generation: 0 });
    }
    Leaves::Streams(streams)
}

fn streams_with_pushes(rig: &mut Rig, count: usize) -> Leaves {
    let streams: Vec<StreamId> = (0..count).map(|n| rig.stream(n as u64 + 10)).collect();
    let address = "192.0.2.9:1935".parse().unwrap();
    let target = crate::protocol::outbound::read_endpoint("rtmp://192.0.2.9/live/x").unwrap();
    for (n, stream) in streams.iter().enumerate() {
        let order = crate::mail::PushOrder {
            push: crate::types::PushId(n as u64),
            attempt: 1,
            stream: *stream,
            address,
            target: target.clone(),
            via: Vec::new(),
            settings: Arc::new(AppSettings::defaults("live").unwrap()),
        };
        rig.worker.orders.start_push(&mut rig.worker.turn, &mut rig.worker.conns, &order);
    }
    assert_eq!(rig.worker.orders.pushes.len(), count);
    Leaves::Streams(streams)
}

/// Returns the processor time of leaving, the minimum of three runs.
fn cost(fill: fn(&mut Rig, usize) -> Leaves, count: usize) -> u64 {
    let run = || {
        let mut rig = Rig::new();
        let leaving = fill(&mut rig, count);
        while rig.worker.poll_output().is_some() {}
        let before = thread_nanos();
        match leaving {
            Leaves::Sessions(sessions) => rig.remove_all(sessions),
            Leaves::Streams(streams) => rig.end_all(streams),
        }
        let spent = thread_nanos() - before;
        assert_eq!(rig.worker.live.awaited.len() + rig.worker.orders.pushes.len(), 0);
        spent
    };
    (0..3).map(|_| run()).min().unwrap()
}

#[test]
fn m_28_leaving_costs_what_was_held() {
    type Row = (&'static str, fn(&mut Rig, usize) -> Leaves);
    let rows: [Row; 7] = [
        ("streams that are awaited", awaited),
        ("one stream that all await", awaited_by_all),
        ("viewers of a stream that they start", held),
        ("viewers of one stream", viewers_of_one),
        ("requests for a blob", blob_waiters),
        ("streams with sinks", streams_with_sinks),
        ("streams with pushes", streams_with_pushes),
    ];
    let mut bad = Vec::new();
    for (name, fill) in rows {
        let (few, many) = (cost(fill, FEW), cost(fill, FEW * TIMES));
        let ratio = many as f64 / few.max(1) as f64;
        println!("| {name} | {few} ns | {many} ns | {ratio:.1} |");
        if ratio > RATIO_MAX {
            bad.push(format!("{name}: {few} ns for {FEW}, {many} ns for {TIMES} times as many"));
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// A page may stop its stream and publish it again in one message.
#[test]
fn who_is_told_to_leave_has_left_before_who_begins_later() {
    let mut rig = Rig::new();
    let (former, leaves) = rig.publisher();
    let ((later, begins), (socket, page)) = (rig.connect(), rig.connect());
    rig.outputs();
    leaves.say(Event::Publication(Handle::ONLY, PublicationEvent::Over(Departure::Clean)));
    let ask = PublishAsk {
        key: StreamKey::new("live", "s"),
        ingest: Ingest::PULL,
        user_agent: String::new(),
        params: Vec::new(),
        via: Vec::new(),
        zero_ms: None,
        of_foreign_page: false,
    };
    begins.say(Event::Publication(Handle::ONLY, PublicationEvent::Publish(ask)));
    let tell = |id| {
        let (to, message) = (SessionRef::new(WorkerId(0), id), Message::new(()));
        Event::Family(FamilyEvent::Tell { to, message })
    };
    rig.say(socket, &page, [tell(former), tell(later)]);
    let told = |output| match output {
        Output::Control(ToControl::PublisherGone { .. }) => Some("gone"),
        Output::Control(ToControl::Publish { .. }) => Some("publish"),
        _ => None,
    };
    assert_eq!(rig.outputs().into_iter().filter_map(told).collect::<Vec<_>>(), ["gone", "publish"]);
}
