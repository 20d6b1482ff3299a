//! Imported folders of files (`POST /vods/directory`; docs/vod.md).
//!
//! 1. A job checks that the folder is below one named by the operator, finds its files, and creates a link to it in the
//!    application's `streams`. Apart from the records, the link is the only state, so the folder is still imported
//!    after a restart.
//! 2. One commit creates the records of all files. Then the request is answered.
//! 3. Forgetting a folder removes the link first, then the records. The files belong to somebody else, and stay.
//!
//! A crash between these steps leaves a link without records, or records without a link. When the folder is forgotten,
//! whatever is left is removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::answer::Outcome;
use super::context::Context;
use super::mask::Requester;
use super::records::Records;
use super::records::auxiliary::{Auxiliary, AuxiliaryRecords, AuxiliaryWrite, Vod};
use super::{Files, wall};
use crate::control::ControlConfig;
use crate::http::Response;
use crate::jobs::{ImportOutcome, ImportWork, ImportedFile, Work};
use crate::types::Now;

/// Maximum number of files from imported folders in an application.
const IMPORTED_MAX: usize = 50_000;
/// Ant Media Server's stream name and id for a file that was not recorded from a stream.
const NO_STREAM: &str = "vodFile";

fn refused(message: &str) -> Response {
    Outcome::failure(message).response(200)
}

fn busy() -> Response {
    Response::error(503, "Too many requests wait").header("Retry-After", "1")
}

impl ControlConfig {
    /// Builds the response that refuses a folder. As in Ant Media Server, the message names the folder that
    /// `vod.import_folders` allows, or `/` if the setting is empty, although `/` is refused as well.
    fn not_allowed(&self) -> Response {
        let named = self.server.values.text("vod.import_folders");
        let named = if named.is_empty() { "/" } else { named };
        refused(&format!("VoD import directory is allowed under {named}"))
    }
}

impl Records {
    /// Imports a folder. Returns the answer if it is known immediately; otherwise a job answers the requester.
    pub(super) fn import_folder(
        &self,
        cx: &mut Context,
        requester: Requester,
        app: &Arc<str>,
        folder: &str,
    ) -> Option<Response> {
        if folder.is_empty() || cx.config.server.import_folders().next().is_none() {
            return Some(cx.config.not_allowed());
        }
        if self.auxiliary.imported(app, "").count() >= IMPORTED_MAX {
            return Some(refused("The application has too many imported files"));
        }
        let (app, asked) = (Arc::clone(app), folder.to_owned());
        let work = Work::Import(ImportWork::Link { app: Arc::clone(&app), folder: asked.clone() });
        let payer = Arc::clone(&app);
        let sent = cx.submit_for(&payer, work, move |control, now, outcome| {
            let answer = match outcome.import() {
                ImportOutcome::Linked(files) => {
                    return control.files.folder_linked(
                        &mut control.cx,
                        &mut control.records,
                        now,
                        requester,
                        &app,
                        files,
                    );
                }
                ImportOutcome::Outside => control.cx.config.not_allowed(),
                ImportOutcome::Missing => refused(&format!("{asked} does not exist or is not a directory")),
                ImportOutcome::Taken(name) => {
                    refused(&format!("There is already a file with the name {name} in the streams directory"))
                }
                ImportOutcome::TooMany => refused("The directory has too many files or is too deep"),
                ImportOutcome::Unlinked(_) => refused(""),
                ImportOutcome::Failed(reason) => {
                    tracing::warn!(app = &*app, reason, "folder import failed");
                    refused("Exception in creating symbolic link")
                }
            };
            control.cx.answer(requester, answer);
        });
        (!sent).then(busy)
    }

    fn folder_unlinked(
        &mut self,
        cx: &mut Context,
        now: Now,
        requester: Requester,
        app: &Arc<str>,
        below: &str,
    ) {
        let ids = self.auxiliary.imported(app, below).filter_map(|vod| vod.vod_id.as_deref());
        let changes: Vec<_> = ids.map(|id| (Vod::key(app, id), None)).collect();
        let text = format!("{} of records are deleted", changes.len());
        let answer = Outcome::success().message(Some(&text)).response(200);
        tracing::info!(app = &**app, records = changes.len(), "folder import removed");
        if changes.is_empty() {
            return cx.answer(requester, answer);
        }
        self.write_auxiliary(
            now,
            AuxiliaryWrite { changes, files: Vec::new(), waiter: Some((requester, answer)) },
        );
    }
}

impl AuxiliaryRecords {
    /// Returns the records of imported files whose path begins with `below`.
    fn imported<'a>(&'a self, app: &Arc<str>, below: &'a str) -> impl Iterator<Item = &'a Vod> {
        let is_below = move |vod: &&Vod| {
            vod.kind.as_deref() == Some(Vod::IMPORTED)
                && vod.file_path.as_deref().is_some_and(|path| path.starts_with(below))
        };
        self.vods(app).filter(is_below)
    }
}

impl Context {
    /// Removes an imported folder. Returns the answer if it is known immediately; otherwise a job answers the
    /// requester.
    pub(super) fn forget_folder(
        &mut self,
        requester: Requester,
        app: &Arc<str>,
        folder: Option<&str>,
    ) -> Option<Response> {
        let missing = |folder: &str| refused(&format!("{folder} does not exist or it's not a directory"));
        let Some(folder) = folder else { return Some(missing("null")) };
        let (app, asked) = (Arc::clone(app), folder.to_owned());
        let work = Work::Import(ImportWork::Unlink { app: Arc::clone(&app), folder: asked.clone() });
        let payer = Arc::clone(&app);
        let sent = self.submit_for(&payer, work, move |control, now, outcome| match outcome.import() {
            ImportOutcome::Unlinked(below) => {
                control.records.folder_unlinked(&mut control.cx, now, requester, &app, &below)
            }
            ImportOutcome::Failed(reason) => {
                tracing::warn!(app = &*app, reason, "folder import not removed");
                control.cx.answer(requester, refused(""));
            }
            ImportOutcome::Linked(_)
            | ImportOutcome::Outside
            | ImportOutcome::Missing
            | ImportOutcome::Taken(_)
            | ImportOutcome::TooMany => control.cx.answer(requester, missing(&asked)),
        });
        (!sent).then(busy)
    }
}

impl Files {
    fn folder_linked(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        now: Now,
        requester: Requester,
        app: &Arc<str>,
        files: Vec<ImportedFile>,
    ) {
        let text = format!("{} files are imported", files.len());
        let answer = Outcome::success().message(Some(&text)).response(200);
        if !cx.apps.contains_key(app) {
            // While the files were read, the application was deleted, and with it the link to the folder.
            return cx.answer(requester, refused(""));
        }
        tracing::info!(app = &**app, files = files.len(), "folder imported");
        if files.is_empty() {
            return cx.answer(requester, answer);
        }
        let mut ids = BTreeSet::new();
        while ids.len() < files.len() {
            ids.insert(self.vod_id(cx, now));
        }
        let record = |(id, file): (String, ImportedFile)| {
            let vod = Vod {
                stream_name: Some(NO_STREAM.to_owned()),
                stream_id: Some(NO_STREAM.to_owned()),
                vod_name: file.path.rsplit('/').next().map(str::to_owned),
                creation_date: wall(now),
                file_path: Some(file.path),
                vod_id: Some(id.clone()),
                kind: Some(Vod::IMPORTED.to_owned()),
                ..Vod::default()
            };
            (Vod::key(app, &id), Some(Auxiliary::Vod(vod.finished(file.finished))))
        };
        let changes = ids.into_iter().zip(files).map(record).collect();
        records.write_auxiliary(
            now,
            AuxiliaryWrite { changes, files: Vec::new(), waiter: Some((requester, answer)) },
        );
    }
}
