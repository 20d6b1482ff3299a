//! Work on the disk that is repeated or given up, and lists of an earlier run.

use hls::playlist::LowLatency;

use super::*;
use crate::config::AppSettings;
use crate::mail::StreamDetails;
use crate::protocol::hls::publishing::Publishing;
use crate::protocol::sinks::SinkOrder;
use crate::protocol::{Event, schema};
use crate::types::{Now, StreamId, StreamKey};

/// Each way in which a job can end without success.
fn not_done() -> [Outcome; 4] {
    [
        Outcome::Busy,
        Outcome::Failed,
        Outcome::Dvr(Err(AppendError::Full)),
        Outcome::Dvr(Err(AppendError::Failed)),
    ]
}

#[test]
fn a_list_that_could_not_be_written_is_written_later() {
    for (is_tail, at) in [false, true].into_iter().flat_map(|is_tail| (0..4).map(move |at| (is_tail, at))) {
        let mut rig = Rig::new(settings(3600, 1 << 30), 1, BTreeMap::new());
        let mut missed = 0;
        for _ in 0..120 {
            rig.segment(1000, false);
            while rig.hand_out() {
                let is_list = |name: &str| name.ends_with(LIST) && name.starts_with(TAIL) == is_tail;
                let is_missed = matches!(&rig.job, Some(DvrWork::Put { name, .. }) if is_list(name))
                    && rig.number > 60
                    && missed < 3;
                missed += u32::from(is_missed);
                rig.done(is_missed.then(|| not_done().into_iter().nth(at).unwrap()));
            }
            rig.now += SEGMENT;
            rig.dvr.handle_timeout(rig.now);
        }
        rig.dvr.finish();
        rig.settle();
        assert_eq!(missed, 3);
        let ended = rig.shown(Choice::default()).unwrap();
        assert!(ended.segments.len() > 60, "{at}");
        let mut next = Rig::new(settings(3600, 1 << 30), 500, rig.disk);
        next.done(None);
        assert_eq!(uris(&next.shown(Choice::default()).unwrap()), uris(&ended), "{is_tail} {at}");
    }
}

#[test]
fn files_that_could_not_be_removed_are_removed_later() {
    for at in 0..4 {
        let mut rig = Rig::new(settings(60, 1 << 30), 1, BTreeMap::new());
        let mut missed = 0;
        for _ in 0..200 {
            rig.segment(1000, false);
            while rig.hand_out() {
                let is_missed = matches!(&rig.job, Some(DvrWork::Drop { .. })) && missed < 3;
                missed += u32::from(is_missed);
                rig.done(is_missed.then(|| not_done().into_iter().nth(at).unwrap()));
            }
            rig.now += SEGMENT;
            rig.dvr.handle_timeout(rig.now);
        }
        assert_eq!(missed, 3);
        assert!(!rig.disk.contains_key("cam000000001.m4s") && !rig.disk.contains_key("1.list"), "{at}");
    }
}

#[test]
fn a_disk_that_fails_for_good_holds_no_end_and_no_segment_back() {
    let mut rig = Rig::new(settings(60, 1 << 30), 1, BTreeMap::new());
    rig.done(None);
    for _ in 0..200 {
        rig.segment(1000, false);
        while rig.hand_out() {
            let is_file = matches!(&rig.job, Some(DvrWork::Put { name, .. }) if !name.ends_with(LIST));
            rig.done((!is_file).then_some(Outcome::Failed));
        }
        rig.now += Duration::from_millis(100);
        rig.dvr.handle_timeout(rig.now);
    }
    assert!(rig.disk.contains_key("cam000000200.m4s"), "segments do not wait for lists");
    rig.dvr.finish();
    let mut tries = 0;
    while !rig.dvr.is_settled() {
        if let Some(at) = rig.dvr.poll_timeout() {
            rig.now = rig.now.max(at);
            rig.dvr.handle_timeout(rig.now);
        }
        assert!(rig.hand_out() && tries < 20);
        tries += 1;
        rig.done(Some(Outcome::Failed));
    }
}

#[test]
fn once_cleared_nothing_comes_back_whatever_the_job_under_way_does() {
    let jobs: [fn(&DvrWork) -> bool; 5] = [
        |work| matches!(work, DvrWork::Resume { .. }),
        |work| matches!(work, DvrWork::Put { name, .. } if !name.ends_with(LIST)),
        |work| matches!(work, DvrWork::Put { name, .. } if name.ends_with(LIST) && !name.starts_with(TAIL)),
        |work| matches!(work, DvrWork::Put { name, .. } if name.starts_with(TAIL)),
        |work| matches!(work, DvrWork::Drop { .. }),
    ];
    let mut before = Rig::new(settings(60, 1 << 30), 1, BTreeMap::new());
    for _ in 0..40 {
        before.segment(1000, false);
        before.settle();
    }
    for (kind, is_wanted) in jobs.into_iter().enumerate() {
        for outcome in not_done().into_iter().map(Some).chain([None]) {
            let mut rig = Rig::new(settings(60, 1 << 30), 100, before.disk.clone());
            let said = format!("{kind} {outcome:?}");
            while !rig.job.as_ref().is_some_and(is_wanted) {
                if rig.hand_out() {
                    rig.done(None);
                } else {
                    rig.segment(1000, false);
                }
                rig.hand_out();
            }
            rig.dvr.finish();
            rig.dvr.clear();
            rig.done(outcome);
            // After a stream was deleted, its further segments are not kept. A removal that fails is tried again.
            rig.segment(1000, false);
            let mut missed = not_done().into_iter();
            while !rig.dvr.is_settled() {
                if let Some(at) = rig.dvr.poll_timeout() {
                    rig.now = rig.now.max(at);
                    rig.dvr.handle_timeout(rig.now);
                }
                assert!(rig.hand_out(), "{said}");
                assert!(matches!(rig.job, Some(DvrWork::Clear { .. })), "{said}: {:?}", rig.job);
                rig.done(missed.next());
            }
            assert!(rig.disk.is_empty() && !rig.hand_out(), "{said}: {:?}", rig.disk.keys());
            assert!(rig.dvr.files.pending.is_empty() && rig.dvr.files.held_bytes == 0);
        }
    }
}

#[test]
fn what_goes_while_the_disk_hangs_is_not_written_behind_its_removal() {
    let mut rig = Rig::new(settings(60, 1 << 30), 1, BTreeMap::new());
    rig.done(None);
    rig.segment(1000, false);
    assert!(rig.hand_out());
    (0..2000).for_each(|_| rig.segment(1000, false));
    let due = &rig.dvr.due;
    assert!(due.lists.len() <= 6, "{} lists", due.lists.len());
    assert!(rig.dvr.files.waiting.len() < 120, "{} files", rig.dvr.files.waiting.len());
    // Once the disk works again, old segments that are on it are removed as well.
    rig.settle();
    let listed = rig.shown(Choice::default()).unwrap();
    let first = listed.media_sequence - LEAVING_SEGMENTS - u64::try_from(2 * CHUNK).unwrap();
    for name in rig.disk.keys().filter(|name| !name.starts_with(TAIL)) {
        let digits: String = name.chars().filter(char::is_ascii_digit).take(9).collect();
        assert!(digits.parse::<u64>().unwrap() >= first, "{name} is left of what begins at {first}");
    }
    assert!(rig.disk.contains_key(&format!("cam{:09}.m4s", rig.number - 1)));
}

#[test]
fn what_goes_while_it_is_written_is_not_written_again() {
    for (at, wanted) in (0..4).flat_map(|at| [(at, "1.list"), (at, "cam000000005.m4s")]) {
        let mut rig = Rig::new(settings(60, 1 << 30), 1, BTreeMap::new());
        while !matches!(&rig.job, Some(DvrWork::Put { name, .. }) if name == wanted) {
            if rig.hand_out() {
                rig.done(None);
            } else {
                rig.segment(1000, false);
            }
            rig.hand_out();
        }
        (0..100).for_each(|_| rig.segment(1000, false));
        rig.done(not_done().into_iter().nth(at));
        rig.now += DUE_RETRY;
        rig.dvr.handle_timeout(rig.now);
        let (mut last, held) = (String::new(), rig.dvr.files.held_bytes);
        while rig.hand_out() {
            if let Some(DvrWork::Put { name, .. }) = &rig.job {
                last.clone_from(name);
                assert_ne!(name, wanted, "{at}");
            }
            rig.done(None);
        }
        assert!(!last.is_empty() && held > 0 && rig.dvr.files.held_bytes == 0);
        assert!(rig.dvr.files.pending.is_empty() && !rig.disk.contains_key(wanted), "{at} {wanted}");
    }
}

#[test]
fn lists_that_wait_are_bounded() {
    let mut rig = Rig::new(settings(3600, 1 << 30), 1, BTreeMap::new());
    rig.done(None);
    rig.dvr.due.retry_at = rig.now.checked_add(DUE_RETRY);
    rig.dvr.due.lists.extend((0..LISTS_MAX).map(|at| (format!("before-{at}"), Bytes::new())));
    for _ in 0..40 {
        rig.segment(1000, false);
        rig.settle();
    }
    let names: Vec<&str> = rig.dvr.due.lists.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names.len(), names.first(), names.last()), (LISTS_MAX, Some(&"before-2"), Some(&"17.list")));
}

#[test]
fn names_to_remove_are_bounded_while_the_disk_hangs() {
    let mut rig = Rig::new(settings(60, 1 << 30), 1, BTreeMap::new());
    rig.done(None);
    rig.segment(1000, false);
    assert!(rig.hand_out());
    for round in 0..2000 {
        let names = (0..100).map(|at| format!("{round}-{at}.ts")).collect();
        rig.dvr.due.leaving.push_back((0, names));
        rig.dvr.settle();
    }
    assert!(rig.dvr.due.drops.len() <= DROPS_MAX);
}

#[test]
fn segments_that_were_lost_count_no_bytes() {
    let mut rig = Rig::new(settings(3600, 1 << 30), 1, BTreeMap::new());
    rig.done(None);
    for _ in 0..60 {
        rig.segment(1000, false);
        while rig.hand_out() {
            let is_lost = matches!(&rig.job, Some(DvrWork::Put { name, .. }) if !name.ends_with(LIST))
                && rig.number.is_multiple_of(2);
            rig.done(is_lost.then_some(Outcome::Failed));
        }
    }
    assert_eq!(rig.dvr.reach.bytes(), 30 * 1000);
    // Segments for which memory had no room are not counted either.
    assert!(!rig.hand_out());
    rig.segment(HELD_BYTES_MAX + 1, false);
    assert_eq!(rig.dvr.reach.bytes(), 30 * 1000);
    rig.dvr.finish();
    rig.settle();
    let mut next = Rig::new(settings(3600, 1 << 30), 500, rig.disk);
    next.done(None);
    assert_eq!(next.dvr.reach.bytes(), 30 * 1000);
}

/// A list with this number of two-second segments.
fn list_of(number: u64, segments: u64) -> Bytes {
    let mut reach = Reach::new(Duration::from_secs(3600));
    reach.begin_at(number, 0);
    let listed = (number..number + segments).map(|number| Listed {
        segment: Segment {
            uri: format!("cam{number:09}.m4s"),
            duration: SEGMENT,
            program_date_time: Some(BEGUN_MS + i64::try_from(number).unwrap() * 2000),
            ..Segment::default()
        },
        bytes: 10,
        piece: None,
    });
    for listed in listed {
        reach.push(listed, (SEGMENT, 3));
    }
    Bytes::from(reach.seal(usize::try_from(segments).unwrap()).unwrap().text.clone())
}

#[test]
fn a_list_of_newest_segments_that_was_left_behind_hides_no_chunk() {
    // Each case: the lists, each by its first number and its number of segments; and the range of numbers with
    // which the stream continues.
    for (lists, from, to) in [
        (vec![(100, 16), (100, 20), (116, 16), (132, 16)], 100, 148),
        (vec![(84, 16), (100, 20), (100, 16), (116, 16), (132, 16)], 84, 148),
        (vec![(100, 20), (100, 16)], 100, 120),
        (vec![(84, 16), (100, 20)], 84, 120),
        (vec![(84, 16), (100, 20), (100, 16), (116, 2)], 84, 120),
        (vec![(84, 16), (101, 16)], 101, 117),
        (vec![(84, 16), (100, 20), (116, 16)], 84, 132),
    ] {
        let mut disk = BTreeMap::new();
        for (number, segments) in &lists {
            // A chunk's list is named by its first number. If two lists begin with the same number, the longer one
            // is the list of the newest segments.
            let is_tail = lists.iter().any(|other| other.0 == *number && other.1 < *segments);
            let name = if is_tail { format!("{TAIL}{LIST}") } else { format!("{number}{LIST}") };
            disk.insert(name, list_of(*number, *segments));
            for number in *number..number + segments {
                disk.insert(format!("cam{number:09}.m4s"), Bytes::from(vec![7; 10]));
            }
        }
        let mut rig = Rig::new(settings(3600, 1 << 30), 500, disk);
        rig.done(None);
        rig.settle();
        let list = rig.shown(Choice::default()).unwrap();
        let end = list.media_sequence + u64::try_from(list.segments.len()).unwrap();
        assert_eq!((list.media_sequence, end), (from, to), "{lists:?}");
        assert_eq!(rig.dvr.reach.bytes(), (to - from) * 10, "{lists:?}");
        // The files of lists that are not used are removed, and so is every list that would mislead the next run.
        let before = |name: &str| name.starts_with("cam") && *name < *format!("cam{from:09}");
        let is_left =
            |name: &&String| before(name) || name.ends_with(LIST) && name.starts_with("84") && from > 84;
        assert_eq!(rig.disk.keys().find(is_left), None, "{lists:?}");
        let mut again = Rig::new(settings(3600, 1 << 30), 600, rig.disk);
        again.done(None);
        assert_eq!(again.shown(Choice::default()).unwrap().media_sequence, from, "{lists:?}");
    }
}

#[test]
fn the_head_of_a_list_holds_for_segments_of_a_former_run() {
    for (is_gap, is_independent) in [(true, true), (false, false), (false, true)] {
        let mut rig = Rig::new(settings(200, 1 << 30), 1, BTreeMap::new());
        rig.live.independent_segments = is_independent;
        rig.done(None);
        for _ in 0..40 {
            rig.segment(1000, false);
            while rig.hand_out() {
                let name = "cam000000005.m4s";
                let is_lost =
                    is_gap && matches!(&rig.job, Some(DvrWork::Put { name: put, .. }) if put == name);
                rig.done(is_lost.then_some(Outcome::Failed));
            }
        }
        rig.dvr.finish();
        rig.settle();
        let mut next = Rig::new(settings(200, 1 << 30), 50, rig.disk);
        next.done(None);
        next.segment(1000, false);
        let list = next.shown(Choice::default()).unwrap();
        assert!(list.segments.len() == 41 && list.segments.iter().any(|segment| segment.gap) == is_gap);
        assert_eq!(list.version, if is_gap { GAP_VERSION } else { 6 });
        assert_eq!(list.independent_segments, is_independent);
        // Enough segments for the old ones to leave the window.
        for _ in 0..200 {
            next.segment(1000, false);
            next.settle();
        }
        assert!(next.shown(Choice::default()).unwrap().independent_segments);
    }
}

#[test]
fn gaps_that_came_and_went_at_once_leave_a_discontinuity() {
    let mut rig = Rig::new(settings(600, 1 << 30), 1, BTreeMap::new());
    for _ in 0..10 {
        rig.segment(1000, false);
        rig.settle();
    }
    // A rendition whose track is away gets eight gaps at the end of another one's segment.
    for _ in 0..8 {
        let date_ms = BEGUN_MS + i64::try_from(rig.number).unwrap() * 2000;
        rig.live.segments.push(Segment {
            uri: format!("cam{:09}.m4s", rig.number),
            duration: SEGMENT,
            program_date_time: Some(date_ms),
            gap: true,
            ..Segment::default()
        });
        rig.number += 1;
    }
    let gone = rig.live.segments.len() - LIST_SIZE;
    rig.live.segments.drain(..gone);
    rig.live.media_sequence += u64::try_from(gone).unwrap();
    rig.dvr.note(&rig.live);
    rig.settle();
    let all = rig.shown(Choice::default()).unwrap();
    let is_step = |segment: &Segment| segment.discontinuity;
    assert_eq!(all.segments.len(), 10 + LIST_SIZE, "{all}");
    assert_eq!(all.segments.iter().position(is_step), Some(10), "the first of those that are left: {all}");
    assert_eq!(all.segments.iter().filter(|segment| is_step(segment)).count(), 1);
}

#[test]
fn jobs_count_for_the_application_of_the_stream() {
    let order = SinkOrder {
        stream: StreamId(1),
        kind: "hls",
        key: StreamKey::new("live", "cam"),
        settings: Arc::new(AppSettings::of(schema(), "live", &[("dvr.window", "60")]).unwrap()),
        details: StreamDetails::default(),
        recording: None,
    };
    let now = Now { mono: Instant::now(), wall_ms: BEGUN_MS.unsigned_abs() };
    let mut publishing = Publishing::copied(now, &order, Seed::from_number(1), "cam.m3u8");
    let Some(Event::Job(job)) = publishing.poll(now) else { panic!("no job") };
    assert_eq!(job.app.as_deref(), Some("live"), "{:?}", job.work);
}

#[test]
fn numbers_of_an_earlier_run_are_not_those_by_which_parts_are_asked_for() {
    let low = || {
        let part_target = Duration::from_millis(300);
        Box::new(LowLatency { part_target, can_block_reload: true, ..LowLatency::default() })
    };
    let mut rig = Rig::new(settings(600, 1 << 30), 1, BTreeMap::new());
    rig.live.low_latency = Some(low());
    for _ in 0..40 {
        rig.segment(1000, false);
        rig.settle();
    }
    assert!(rig.shown(Choice::default()).unwrap().low_latency.unwrap().can_block_reload);
    let mut next = Rig::new(settings(600, 1 << 30), 100, rig.disk);
    next.live.low_latency = Some(low());
    next.settle();
    for _ in 0..3 {
        next.segment(1000, false);
        next.settle();
    }
    let shown = next.shown(Choice::default()).unwrap();
    assert!(shown.segments.len() == 43 && shown.media_sequence == 1, "{shown}");
    assert!(shown.low_latency.is_none_or(|low| !low.can_block_reload));
}

#[test]
fn a_stream_that_is_back_at_once_waits_for_the_files_of_the_one_before_it() {
    let mut rig = Rig::new(settings(600, 1 << 30), 1, BTreeMap::new());
    for _ in 0..3 {
        let taken = DvrDone { is_taken: true, ..DvrDone::default() };
        rig.done(Some(Outcome::Dvr(Ok(taken))));
        rig.segment(1000, false);
        assert!(!rig.hand_out() && rig.shown(Choice::default()).is_none(), "nothing is written meanwhile");
        rig.now += RETRY;
        rig.dvr.handle_timeout(rig.now);
        assert!(rig.hand_out() && matches!(rig.job, Some(DvrWork::Resume { .. })));
    }
    rig.settle();
    rig.segment(1000, false);
    assert_eq!(rig.shown(Choice::default()).unwrap().segments.len(), 4);
    let writer = Writer::of(&rig.dvr.writer);
    rig.dvr.finish();
    rig.settle();
    assert!(!writer.is_there(), "the next one may begin");
}
