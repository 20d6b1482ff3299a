//! `millstream import`: supplies the clock, the store and the hashes that an import needs.

use std::io::Write;

use super::{clock, jobs, local};
use crate::config::{Options, StorePlace};
use crate::import::{self, Order, Tools};
use crate::jobs::PasswordDigest;
use crate::store::{self, Key, Store, backup};

/// Imports an installation of Ant Media Server. Prints the table of differences and returns a summary.
///
/// # Errors
/// The reason of a failure, in one line.
pub fn run(options: &Options, order: &Order, out: &mut dyn Write) -> Result<String, String> {
    let seed = super::store_tools::seed().map_err(|error| error.to_string())?.derive("import", 0);
    let random = std::cell::RefCell::new(seed.random());
    let hash = |digest: &PasswordDigest| {
        let mut salt = [0; 16];
        random.borrow_mut().fill(&mut salt);
        jobs::make_imported(digest, salt)
    };
    let tools = Tools { now_ms: clock::now().wall_ms, open: &open, read: &read, hash: &hash };
    import::run(options, order, &tools, out)
}

fn open(place: &StorePlace) -> Result<Box<dyn Store>, String> {
    let opened = local::open_store_at(&place.file, place.used);
    opened.map(|store| Box::new(store) as _).map_err(|error| backup::with_advice(&error, &place.file))
}

fn read(place: &StorePlace) -> Result<Vec<Key>, String> {
    let path = &place.file;
    if !path.exists() {
        return Ok(Vec::new());
    }
    let all = store::check_copy(path).map_err(|error| backup::with_advice(&error, path))?;
    Ok(all.into_iter().map(|(key, _)| key).collect())
}
