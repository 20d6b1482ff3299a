//! HLS: playlists, and a client. The input determines the answers of the client's server.

use std::time::Duration;

use bytes::Bytes;
use hls::{Client, Config, Event, Playlist, Request};

use crate::http_targets::epoch;

/// Minimum time between two identical requests.
const SAME_REQUEST: Duration = Duration::from_millis(500);

/// Reads a playlist of either kind. After it is written, it must read the same.
pub fn m3u8(data: &[u8]) {
    let Ok(playlist) = Playlist::read(data) else { return };
    match Playlist::read(playlist.to_string().as_bytes()) {
        Ok(again) => assert_eq!(again, playlist),
        // The written text contains names of attributes and offsets that the input left out, so it may exceed a
        // limit.
        Err(hls::Error::Limit { .. }) => {}
        Err(error) => panic!("{error}: {playlist}"),
    }
}

/// Runs the client. Each step is one byte, followed by a length and a body if it is an answer.
pub fn hls_client(data: &[u8]) {
    let mut now = epoch();
    let mut client = Client::new("http://o/p.m3u8", Config::default(), now).expect("it is a URL");
    let (mut asked, mut outstanding, mut ended): (Vec<(_, Request)>, bool, bool) = (Vec::new(), false, false);
    let mut rest = data;
    while let Some((step, tail)) = rest.split_first() {
        rest = tail;
        if let Some(request) = client.poll_request() {
            assert!(!outstanding && !ended, "one request at a time, and none behind the end");
            assert!(request.url.starts_with("http://") || request.url.starts_with("https://"));
            let same = asked.iter().rev().find(|(_, before)| *before == request);
            assert!(same.is_none_or(|(at, _)| now - *at >= SAME_REQUEST), "too soon: {request:?}");
            asked.push((now, request));
            outstanding = true;
        }
        match step % 6 {
            0 => {
                let (length, tail) = rest.split_at(rest.len().min(2));
                let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)).min(tail.len());
                let (body, tail) = tail.split_at(length);
                rest = tail;
                outstanding = client.handle_body(now, Bytes::copy_from_slice(body));
            }
            1 => {
                client.handle_response_end(now);
                outstanding = false;
            }
            2 => {
                client.handle_failure(now, "failed");
                outstanding = false;
            }
            3 => {
                let (location, tail) = rest.split_at(rest.len().min(8));
                rest = tail;
                client.handle_redirect(now, &String::from_utf8_lossy(location));
                outstanding = false;
            }
            4 => {
                if let Some(at) = client.poll_timeout() {
                    assert!(at > now, "a deadline in the past");
                    now = at;
                }
                client.handle_timeout(now);
            }
            _ => {
                now += Duration::from_millis(u64::from(step / 6) * 50);
                client.handle_timeout(now);
            }
        }
        let mut count = 0;
        while let Some(event) = client.poll_event() {
            assert!(!ended, "nothing follows the end");
            ended = matches!(event, Event::Ended(_));
            count += 1;
        }
        assert!(count <= 8, "{count} events of one step");
    }
}
