//! A store that exists only in memory, for simulations. It can be made to fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::backup::Backup;
use super::{Copying, Error, Key, Op, Store};

/// Faults to inject into the next calls. The test shares this value.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<(u32, u32)>>);

impl Faults {
    /// Makes the next `commits` commits and the next `rebuilds` rebuilds fail.
    pub fn fail(&self, commits: u32, rebuilds: u32) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (commits, rebuilds);
    }

    fn take(&self, rebuild: bool) -> bool {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = if rebuild { &mut left.1 } else { &mut left.0 };
        let fail = *counter > 0;
        *counter = counter.saturating_sub(1);
        fail
    }
}

/// A store in memory.
#[derive(Debug, Default)]
pub struct Memory {
    records: BTreeMap<Key, Bytes>,
    faults: Faults,
    unknown: bool,
}

impl Memory {
    /// Creates an empty store without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty store. `faults` determines which calls fail.
    #[must_use]
    pub fn with_faults(faults: Faults) -> Self {
        Self { faults, ..Self::default() }
    }
}

fn injected() -> Error {
    Error::Io { path: "memory".to_owned(), reason: "injected fault".to_owned() }
}

impl Store for Memory {
    fn read(&mut self, give: &mut dyn FnMut(Key, Bytes)) -> Result<(), Error> {
        self.records.iter().for_each(|(key, bytes)| give(key.clone(), bytes.clone()));
        Ok(())
    }

    fn commit(&mut self, ops: &[Op]) -> Result<(), Error> {
        if self.unknown {
            return Err(Error::Unknown);
        }
        if self.faults.take(false) {
            self.unknown = true;
            return Err(injected());
        }
        for op in ops {
            match op {
                Op::Put(key, bytes) => self.records.insert(key.clone(), bytes.clone()),
                Op::Delete(key) => self.records.remove(key),
            };
        }
        Ok(())
    }

    fn rebuild(&mut self, all: &[(Key, Bytes)]) -> Result<(), Error> {
        if self.faults.take(true) {
            self.unknown = true;
            return Err(injected());
        }
        self.records = all.iter().cloned().collect();
        self.unknown = false;
        Ok(())
    }

    fn backup(&mut self, _: &Backup) -> Copying {
        let result = if self.unknown { Err(Error::Unknown) } else { Ok(()) };
        Box::new(|| result)
    }
}
