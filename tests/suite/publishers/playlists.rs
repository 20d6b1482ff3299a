//! Players of HLS: the segments of a stream that has ended, from the first to the last.

use std::time::Instant;

use fmp4::{Limits, Reader};
use hls::Playlist;
use hls::playlist::MediaPlaylist;
use netsim::secs;

use super::World;
use super::viewers::{Got, Log, Shared, TransportStream};

/// The playlists that the players read. The server makes segments once somebody has asked for one of these.
pub const NAMES: [&str; 3] = [TRANSPORT_STREAM, RENDITIONS[0].0, RENDITIONS[1].0];
const TRANSPORT_STREAM: &str = "odd.m3u8";
/// Low-latency playlists, each with `true` for video or `false` for audio.
const RENDITIONS: [(&str, bool); 2] =
    [("ll-hls/odd/odd__video.m3u8", true), ("ll-hls/odd/odd__audio.m3u8", false)];
/// Maximum difference between a segment's duration in a playlist and that of its pictures, in milliseconds.
const DURATION_OFF_MAX: i64 = 60;

/// Returns the body of a file of the stream, if the file exists.
fn get(world: &mut World, name: &str) -> Option<Vec<u8>> {
    let id = world.request(&format!("GET /live/streams/{name}"), "");
    world.run_until("a file", secs(30), |world| world.answer_bytes(id).is_some());
    let answer = world.answer_bytes(id).unwrap();
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    answer.starts_with(b"HTTP/1.1 200 ").then(|| answer[head..].to_vec())
}

fn playlist(world: &mut World, name: &str) -> Option<MediaPlaylist> {
    match Playlist::read(&get(world, name)?) {
        Ok(Playlist::Media(playlist)) => Some(playlist),
        other => panic!("{name}: {other:?}"),
    }
}

/// Returns the folder of a playlist, to which the names in it are relative.
fn folder(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn file(world: &mut World, list: &str, uri: &str) -> Result<Vec<u8>, String> {
    let path = if folder(list).is_empty() { uri.to_owned() } else { format!("{}/{uri}", folder(list)) };
    get(world, &path).ok_or_else(|| format!("{path} is named and is not there"))
}

/// Checks that the playlist has ended, and that no segment is longer than its target duration.
fn check_list(list: &MediaPlaylist) -> Result<(), String> {
    if !list.ended {
        return Err("the playlist of an ended stream has no end".to_owned());
    }
    let target = list.target_duration.as_millis() + 500;
    match list.segments.iter().find(|segment| segment.duration.as_millis() > target) {
        Some(long) => Err(format!("{} lasts {:?} of {:?}", long.uri, long.duration, list.target_duration)),
        None => Ok(()),
    }
}

/// Compares the sum of a playlist's durations with the time from the first to the last unit that `is_in` the
/// playlist.
fn check_length(list: &MediaPlaylist, log: &Log, is_in: impl Fn(&Got) -> bool) -> Result<(), String> {
    let said: i64 =
        list.segments.iter().map(|segment| i64::try_from(segment.duration.as_millis()).unwrap()).sum();
    let mut times: Vec<i64> = log.got.iter().filter(|unit| is_in(unit)).map(|unit| unit.dts).collect();
    times.sort_unstable();
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(()) };
    let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let (held, slack) = (last - first, gap + DURATION_OFF_MAX);
    if (said - held).abs() <= slack {
        Ok(())
    } else {
        Err(format!("the playlist lasts {said} ms, its media {held} ms, to {slack}"))
    }
}

/// Plays the transport stream.
pub fn of_transport_stream(world: &mut World) -> Result<Log, String> {
    let name = TRANSPORT_STREAM;
    let list = playlist(world, name).ok_or("no playlist")?;
    check_list(&list)?;
    let (log, now) = (Shared::default(), world.instant());
    for segment in &list.segments {
        let bytes = file(world, name, &segment.uri)?;
        let mut media = TransportStream::new(log.clone());
        media.payload(now, &bytes);
        media.finish(now);
    }
    let log = std::mem::take(&mut *log.lock());
    check_length(&list, &log, |_| true)?;
    Ok(log)
}

/// Plays the low-latency renditions.
pub fn of_renditions(world: &mut World) -> Result<Log, String> {
    let log = Shared::default();
    let mut found = false;
    for (name, is_video) in RENDITIONS {
        let Some(list) = playlist(world, name) else { continue };
        found = true;
        check_list(&list)?;
        read_rendition(world, name, &list, is_video, &log)?;
        check_length(&list, &log.lock(), |unit| unit.is_video == is_video)?;
    }
    let log = std::mem::take(&mut *log.lock());
    if found { Ok(log) } else { Err("no rendition".to_owned()) }
}

fn read_rendition(
    world: &mut World,
    name: &str,
    list: &MediaPlaylist,
    is_video: bool,
    log: &Shared,
) -> Result<(), String> {
    let (mut map, now) = (None, world.instant());
    let mut reader = Reader::new(Limits::default());
    let mut scale = 1;
    // A gap has no file (RFC 8216bis §4.4.4.7).
    for segment in list.segments.iter().filter(|segment| !segment.gap) {
        let own = segment.map.as_ref().ok_or("a segment without a map")?;
        if map.as_ref() != Some(&own.uri) {
            map = Some(own.uri.clone());
            reader = Reader::new(Limits::default());
            read(&mut reader, &file(world, name, &own.uri)?, &mut scale, is_video, log, now)?;
        }
        let bytes = file(world, name, &segment.uri)?;
        reader.begin_segment().map_err(|error| error.to_string())?;
        read(&mut reader, &bytes, &mut scale, is_video, log, now)?;
    }
    Ok(())
}

fn read(
    reader: &mut Reader,
    mut bytes: &[u8],
    scale: &mut i64,
    is_video: bool,
    log: &Shared,
    now: Instant,
) -> Result<(), String> {
    while let Some(event) = reader.read(&mut bytes).map_err(|error| error.to_string())? {
        match event {
            fmp4::Event::Tracks { tracks, .. } => {
                let track = tracks.first().ok_or("an index without a track")?;
                *scale = i64::from(track.timescale.ticks());
            }
            fmp4::Event::Sample(sample) => {
                let [dts, pts] = [sample.dts, sample.pts].map(|ticks| ticks * 1000 / *scale);
                log.unit(now, is_video, (dts, pts), &sample.payload);
            }
        }
    }
    Ok(())
}
