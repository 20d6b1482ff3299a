//! Names of objects: no upload overwrites the object of another record, and an object is removed only for the last record
//! that names it.

use crate::config::S3Settings;
use crate::control::Files;
use crate::control::context::Context;
use crate::control::records::Records;
use crate::control::records::auxiliary::{Auxiliary, Kept, Store, Vod};
use crate::store::Key;

/// True if a record's object has this name in this storage, now or after its upload. The storage of an object that an
/// earlier version of this server uploaded counts as the one in the settings.
fn is_object_of(cx: &Context, (store, name): (&Store, &str), (key, vod): (&Key, &Vod)) -> bool {
    let current = || cx.apps.get(&key.app).and_then(|app| app.vod.s3.as_deref()).map(Store::of);
    match &vod.kept {
        Some(kept) if kept.name() != name => false,
        Some(Kept::There(uploaded)) => uploaded.store.clone().or_else(current).as_ref() == Some(store),
        Some(Kept::Wanted { .. }) => current().as_ref() == Some(store),
        None => false,
    }
}

/// Makes a name that no other object has, from the name of a file and the id of its record.
fn with_id(name: &str, id: &str) -> String {
    match name.rsplit_once('.') {
        _ if name.contains(id) => name.to_owned(),
        Some((stem, extension)) if !extension.contains('/') => format!("{stem}-{id}.{extension}"),
        Some(_) | None => format!("{name}-{id}"),
    }
}

impl Files {
    /// True if a record other than `own` has an object of this name in this storage, or will have it.
    pub(super) fn is_object_of_other(
        &self,
        cx: &Context,
        records: &Records,
        object: (&Store, &str),
        own: &Key,
    ) -> bool {
        let is_other = |(key, vod): (&Key, &Vod)| key != own && is_object_of(cx, object, (key, vod));
        let of_record = |key| match records.auxiliary.get(key) {
            Some(Auxiliary::Vod(vod)) => is_other((key, vod)),
            Some(Auxiliary::Token(_) | Auxiliary::Subscriber(_) | Auxiliary::User(_)) | None => false,
        };
        records.auxiliary.all_of_object(object.1).any(of_record) || self.recordings.unsaved().any(is_other)
    }

    /// Returns the name under which a file is uploaded: the wanted one, or one with the record's id if another object
    /// has the wanted one, is being uploaded under it, or is being removed. In a cluster, nodes that begin at the same
    /// time may give their files the same name.
    pub(super) fn free_object_name(
        &self,
        cx: &Context,
        records: &Records,
        (own, wanted): (&Key, &str),
        storage: &S3Settings,
    ) -> String {
        let place = (Store::of(storage), wanted.to_owned());
        let is_taken = self.is_object_of_other(cx, records, (&place.0, wanted), own)
            || self.objects.removing.contains(&place)
            || self.objects.uploading.get(&place).is_some_and(|of| of != own);
        if is_taken { with_id(wanted, &own.id) } else { wanted.to_owned() }
    }
}
