//! Bodies of the REST API.

use std::time::Instant;

use crate::control::broadcast::{Broadcast, is_stream_id, parse_body};
use crate::types::Now;

/// Reads the body of a request that creates or updates a record. The record made from the body must be the same
/// after it is stored and read again, and must be shown as valid JSON.
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
    // Fractions may lose their last bit when they are written as text.
    if !data.iter().any(|b| b".eE".contains(b)) {
        assert_eq!(&again, record);
    }
    let now = Now { mono: Instant::now(), wall_ms: 1_767_225_600_000 };
    assert!(serde_json::from_slice::<serde_json::Value>(&record.to_json(now)).is_ok());
}
