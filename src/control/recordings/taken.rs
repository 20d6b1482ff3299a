//! Names that are taken: a new file gets a name that no record has, and a file is removed only for the last record that
//! names it.

use std::sync::Arc;

use crate::control::Files;
use crate::control::context::Context;
use crate::control::records::Records;
use crate::control::records::auxiliary::{Auxiliary, Kept, Place, Vod};
use crate::jobs::series_of;
use crate::store::Key;

/// Highest number that counts as that of a series. Higher ones are parts of requested names, such as dates.
const NUMBER_MAX: u64 = 99_999;

/// A file on this machine to remove, and the record that named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OldFile {
    pub(super) path: Vec<String>,
    own: Key,
    node: Option<Box<Place>>,
}

impl OldFile {
    pub(super) fn of(app: &Arc<str>, vod: &Vod) -> Self {
        let own = Vod::key(app, vod.vod_id.as_deref().unwrap_or_default());
        Self { path: vod.path(app), own, node: vod.node.clone() }
    }

    /// True if another record names this file, which is on this machine.
    fn is_also_of(&self, keeps_local: bool, (key, vod): (&Key, &Vod)) -> bool {
        let is_elsewhere = vod.node.is_some() && self.node.is_some() && vod.node != self.node;
        let is_moved = !keeps_local && matches!(vod.kept, Some(Kept::There(_)));
        *key != self.own && !is_elsewhere && !is_moved
    }
}

impl Files {
    /// True if a file to remove belongs to another record, or a recording writes it.
    pub(super) fn is_file_of_other(&self, cx: &Context, records: &Records, file: &OldFile) -> bool {
        let Some((_, below)) = file.path.split_first() else { return false };
        let (app, below) = (&file.own.app, below.join("/"));
        let s3 = cx.apps.get(app).and_then(|settings| settings.vod.s3.as_ref());
        let keeps_local = s3.is_some_and(|storage| storage.keeps_local);
        let is_written = self.recordings.writing.get(&file.path).is_some_and(|own| own.key != file.own);
        let of_record = |key| match records.auxiliary.get(key) {
            Some(Auxiliary::Vod(vod)) => file.is_also_of(keeps_local, (key, vod)),
            Some(Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_)) | None => false,
        };
        let is_it = |vod: &Vod| vod.file_path.as_deref() == Some(below.as_str());
        let of_unsaved = |(key, vod): (&Key, &Vod)| {
            key.app == *app && is_it(vod) && file.is_also_of(keeps_local, (key, vod))
        };
        is_written
            || records.auxiliary.all_of_file(app, &below).any(of_record)
            || self.recordings.unsaved().any(of_unsaved)
    }

    /// Returns the number from which on names of a series are free, as far as records, recordings under way and
    /// removals tell: one more than the highest in use. `first` is the first name of the series in `folder`, which
    /// begins with the application.
    pub(super) fn free_number(
        &self,
        records: &Records,
        app: &Arc<str>,
        folder: &[String],
        first: &str,
    ) -> u64 {
        let number_of = |name: &str| {
            let (own, number) = series_of(name);
            let number = if name == first { 0 } else { number };
            ((name == first || own == first) && number <= NUMBER_MAX).then_some(number)
        };
        let in_folder = |path: &Vec<String>| {
            let (name, names) = path.split_last()?;
            (names == folder).then_some(name).and_then(|name| number_of(name))
        };
        let below = folder.get(1..).unwrap_or_default().join("/");
        let in_folder_below = |path: &str| {
            let (names, name) = path.rsplit_once('/')?;
            (names == below).then_some(name).and_then(number_of)
        };
        let path = format!("{below}/{first}");
        let stored = records.auxiliary.last_of_series(app, &path, NUMBER_MAX);
        let first_stored = records.auxiliary.of_file(app, &path).map(|_| 0);
        let unsaved = self.recordings.unsaved().filter(|(key, _)| key.app == *app);
        let unsaved = unsaved.filter_map(|(_, vod)| in_folder_below(vod.file_path.as_deref()?));
        let written = self.recordings.writing.keys().filter_map(in_folder);
        let removed = self.recordings.sweep.removing.iter().filter_map(in_folder);
        let all = written.chain(removed).chain(unsaved).chain(stored).chain(first_stored);
        let all: Vec<u64> = all.collect();
        // `cam_2.mp4` alone is the file of a stream of that name.
        if !all.contains(&0) {
            return 0;
        }
        all.into_iter().max().map_or(0, |highest| highest.saturating_add(1))
    }
}
