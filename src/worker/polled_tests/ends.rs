//! Streams that end: their last blobs, and requests that wait for more.

use super::*;

#[test]
fn a_stream_that_ends_before_its_first_playlist_is_answered_with_its_last() {
    let mut pair = Pair::new();
    let waiting = pair.ask("/live/streams/cam.m3u8", [192, 0, 2, 1]);
    let low = pair.ask("/live/streams/ll-hls/cam/cam__video.m3u8", [192, 0, 2, 1]);
    pair.end();
    assert_eq!(pair.answer(waiting), (Vec::new(), false));
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U end"));
    assert_eq!(body(&pair.answer(waiting).0), b"#EXTM3U end");
    let late = pair.get("/live/streams/cam.m3u8", [192, 0, 2, 2]);
    assert_eq!(body(&late.0), b"#EXTM3U end");
    // No sink makes the low-latency playlist. Its request is not answered with the other playlist, but waits in vain.
    pair.pass(Duration::from_secs(2));
    assert!(pair.answer(low).1);
    assert_eq!(pair.workers[1].polled.waiting_requests(), 0);
    pair.pass(BLOBS_LINGER);
    assert_eq!(pair.publish("cam.m3u8", 2, Bytes::from_static(b"late")), Published::Refused);
    assert_eq!(pair.workers.each_ref().map(|worker| worker.turn.blobs.bytes()), [0, 0]);
}

#[test]
fn the_last_playlist_of_a_stream_does_not_come_under_the_next_one() {
    let mut pair = Pair::new();
    pair.end();
    pair.begin(StreamId(8));
    let waiting = pair.ask("/live/streams/cam.m3u8", [192, 0, 2, 1]);
    assert_eq!(pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U end")), Published::Refused);
    assert_eq!(pair.answer(waiting), (Vec::new(), false));
    pair.publish_of(StreamId(8), "cam.m3u8", 2, Bytes::from_static(b"#EXTM3U new"));
    assert_eq!(body(&pair.answer(waiting).0), b"#EXTM3U new");
}

#[test]
fn a_reload_of_a_playlist_without_an_end_waits_for_the_next_stream() {
    let mut pair = Pair::new();
    pair.publish_as(STREAM, "cam.m3u8", 1, Bytes::from_static(b"#EXTM3U"), Progress { segment: 3, part: 0 });
    let reload = pair.ask("/live/streams/cam.m3u8?_HLS_msn=4", [192, 0, 2, 1]);
    pair.end();
    pair.pass(BLOB_WAIT / 2);
    assert_eq!(pair.answer(reload), (Vec::new(), false));
}

#[test]
fn ended_streams_without_blobs_are_remembered_in_bounds() {
    let mut pair = Pair::new();
    for stream in (100..5000).map(StreamId) {
        pair.begin(stream);
        for worker in &mut pair.workers {
            worker.handle_mail(pair.now, ToWorker::StreamDown { stream, end: StreamEnd::Stopped });
        }
    }
    assert_eq!(pair.workers[1].polled.ended_streams(), polled::ENDED_MAX);
    pair.pass(BLOBS_LINGER);
    assert_eq!(pair.workers[1].polled.ended_streams(), 0);
}
