//! Bodies of the REST API.

use std::time::Instant;

use crate::control::broadcast::{Broadcast, is_stream_id, parse_body};
use crate::types::Now;

/// The body of a create or an update: the record it makes is stored and shown, and reads the same.
pub fn json_rest(data: &[u8]) {
    let Ok(Some(body)) = parse_body(data) else { return };
    let mut record = Broadcast::from_body(body.clone());
    check(&record, data);
    record.update(body);
    check(&record, data);
    assert!(!is_stream_id("..") && record.stream_id.is_empty(), "a body named the stream");
}

fn check(record: &Broadcast, data: &[u8]) {
    let stored = record.encode();
    let again = match Broadcast::decode(&stored) {
        Ok(again) => again,
        Err(error) => panic!("own record does not read: {error}"),
    };
    // Fractions may lose their last bit on the way through text.
    if !data.iter().any(|b| b".eE".contains(b)) {
        assert_eq!(&again, record);
    }
    let now = Now { mono: Instant::now(), wall_ms: 1_767_225_600_000 };
    assert!(serde_json::from_slice::<serde_json::Value>(&record.to_json(now)).is_ok());
}
