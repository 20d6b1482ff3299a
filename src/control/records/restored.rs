//! The contents of the store at the start, decoded part by part.

use bytes::Bytes;

use super::auxiliary::Auxiliary;
use crate::control::Broadcast;
use crate::store::{self, Key};

/// Some of the records of the store.
#[derive(Debug)]
pub struct Restored(pub(in crate::control) Vec<(Key, StoredRecord)>);

/// A restored record.
#[derive(Debug)]
pub(in crate::control) enum StoredRecord {
    Broadcast(Box<Broadcast>),
    Auxiliary(Box<Auxiliary>),
}

/// A stored record that cannot be read; the start is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored {:?} {key}: {reason}", key.kind)]
pub struct BadRecord {
    /// The record's key.
    pub key: Key,
    /// The reason it cannot be read.
    pub reason: String,
}

/// The reason the contents of the store cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A record that cannot be read.
    #[error(transparent)]
    Record(#[from] BadRecord),
    /// Not everything was read.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Restored {
    /// Decodes records as the store gives them.
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
