//! The contents of the store at the start, decoded part by part.

use bytes::Bytes;

use super::auxiliary::Auxiliary;
use crate::control::Broadcast;
use crate::store::{self, Key};

/// A part of the store's records.
#[derive(Debug)]
pub struct Restored(pub(in crate::control) Vec<(Key, StoredRecord)>);

/// A decoded record.
#[derive(Debug)]
pub(in crate::control) enum StoredRecord {
    Broadcast(Box<Broadcast>),
    Auxiliary(Box<Auxiliary>),
}

/// A stored record that cannot be read; the server refuses to start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored {:?} {key}: {reason}", key.kind)]
pub struct BadRecord {
    /// Key of the record.
    pub key: Key,
    /// Reason for the failure.
    pub reason: String,
}

/// The reason for which the contents of the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// An unreadable record.
    #[error(transparent)]
    Record(#[from] BadRecord),
    /// The store could not be read to its end.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Restored {
    /// Decodes records as read from the store.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub fn decode(stored: &[(Key, Bytes)]) -> Result<Self, BadRecord> {
        let decode = |(key, bytes): &(Key, Bytes)| {
            let record = match Auxiliary::decode(key.kind, bytes) {
                Some(record) => record.map(Box::new).map(StoredRecord::Auxiliary),
                None => Broadcast::decode(bytes).map(Box::new).map(StoredRecord::Broadcast),
            };
            let record = record.map_err(|reason| BadRecord { key: key.clone(), reason })?;
            Ok((key.clone(), record))
        };
        stored.iter().map(decode).collect::<Result<_, _>>().map(Self)
    }
}
