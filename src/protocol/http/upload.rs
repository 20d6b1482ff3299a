//! A file uploaded as the body of a request.
//!
//! 1. Control is asked with only the head of the request: all checks of the API are made before the first byte of the
//!    body.
//! 2. [`RequestNews::Upload`] grants the file. The body is read as it arrives, and jobs append its part `file` to the
//!    file, one job at a time. The number of bytes that wait for a job is limited. At the limit, the body is not read,
//!    so the peer waits.
//! 3. Control is notified when all is written ([`RequestEvent::Upload`]). It answers the request once it has made a
//!    recording of the file.
//!
//! If the connection ends before that, the worker notifies control.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Fields;
use super::responder::{Link, Next, Responder};
use crate::http::{Connection, FormEvent, Malformed, Multipart, Response, cors};
use crate::jobs::{AppendError, AppendFile, AppendTo, Job, JobDone, JobId, Outcome, Work};
use crate::mail::{UploadGrant, UploadNews};
use crate::protocol::{Context, Event, Reply, RequestEvent, RequestNews};
use crate::types::Now;

/// Maximum bytes gathered while a job is in progress.
const GATHERED_BYTES_MAX: usize = 1 << 20;
/// Maximum size of the part `metadata`.
const METADATA_BYTES_MAX: usize = 16 << 10;
/// Pause before a job is submitted again that was refused because too many jobs waited.
const RETRY: Duration = Duration::from_millis(200);

/// The part of the form being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    File,
    Metadata,
    Other,
}

#[derive(Debug)]
enum Stage {
    /// Control was asked.
    Asked,
    /// The body is being received.
    Receiving(Receiving),
    /// Control was notified of the outcome.
    Told,
    Over,
}

#[derive(Debug)]
struct Receiving {
    file: Arc<dyn AppendFile>,
    part: Part,
    /// True if the body has had a part `file`.
    has_file: bool,
    metadata: Vec<u8>,
    gathered: Vec<Bytes>,
    gathered_bytes: usize,
    /// The bytes that the job in progress appends.
    under_way: Vec<Bytes>,
    is_writing: bool,
    retry_at: Option<Instant>,
}

/// An upload.
#[derive(Debug)]
pub(super) struct Upload {
    fields: Fields,
    form: Multipart,
    stage: Stage,
}

impl Upload {
    /// Makes the responder of an upload. Control is asked whether to accept the body, which is a form.
    pub(super) const fn new(fields: Fields, form: Multipart) -> Self {
        Self { fields, form, stage: Stage::Asked }
    }

    /// Accepts the body: control has granted the file.
    fn granted(&mut self, now: Now, connection: &mut Connection, grant: UploadGrant) {
        self.stage = Stage::Receiving(Receiving {
            file: grant.file,
            part: Part::Other,
            has_file: false,
            metadata: Vec::new(),
            gathered: Vec::new(),
            gathered_bytes: 0,
            under_way: Vec::new(),
            is_writing: false,
            retry_at: None,
        });
        connection.take_body(now.mono, grant.bytes_max);
    }

    /// Sends control's response.
    fn answer(&mut self, now: Now, connection: &mut Connection, mut response: Response) {
        cors::add(&self.fields, &mut response.headers);
        connection.respond(now.mono, now.wall_ms, response);
        self.stage = Stage::Over;
    }

    /// Handles the answer to the job in progress.
    fn job_done(&mut self, now: Now, done: JobDone) -> Option<Event> {
        let Stage::Receiving(receiving) = &mut self.stage else { return None };
        receiving.is_writing = false;
        #[allow(clippy::wildcard_enum_match_arm, reason = "whatever else it is, nothing was written")]
        let reason = match done.outcome {
            Outcome::Appended(Ok(_)) => {
                receiving.under_way = Vec::new();
                return None;
            }
            Outcome::Busy => {
                receiving.retry_at = now.mono.checked_add(RETRY);
                return None;
            }
            Outcome::Appended(Err(AppendError::Full)) => "the disk is full",
            _ => "the file cannot be written",
        };
        self.stage = Stage::Told;
        Some(Event::Request(RequestEvent::Upload(UploadNews::Failed(reason))))
    }

    /// Reads the body as long as there is room. Returns the next job, or, once all is written, the event for control.
    fn pump(&mut self, now: Now, connection: &mut Connection) -> Option<Event> {
        let Stage::Receiving(receiving) = &mut self.stage else { return None };
        while receiving.gathered_bytes < GATHERED_BYTES_MAX
            && let Some(block) = connection.poll_body(now.mono)
        {
            self.form.feed(&block);
            if receiving.take_parts(&mut self.form).is_err() {
                return self.refuse(now, connection);
            }
        }
        if receiving.is_writing || receiving.retry_at.is_some() {
            return None;
        }
        if let Some(job) = receiving.poll_job() {
            return Some(Event::Job(job));
        }
        if !connection.is_body_complete() {
            return None;
        }
        if !receiving.has_file || !self.form.is_complete() {
            return self.refuse(now, connection);
        }
        let metadata = std::mem::take(&mut receiving.metadata);
        let metadata = Some(String::from_utf8_lossy(&metadata).into_owned()).filter(|text| !text.is_empty());
        self.stage = Stage::Told;
        Some(Event::Request(RequestEvent::Upload(UploadNews::Received { metadata })))
    }

    /// Refuses a body that is not a form, or has no file.
    fn refuse(&mut self, now: Now, connection: &mut Connection) -> Option<Event> {
        self.answer(now, connection, Response::error(400, "Bad Request"));
        Some(Event::Request(RequestEvent::Upload(UploadNews::Gone)))
    }
}

impl Responder for Upload {
    fn handle_reply(&mut self, ctx: &Context<'_>, link: &mut Link, reply: Reply<'_>) -> Next {
        match reply {
            Reply::Request(RequestNews::Response(response)) => {
                self.answer(ctx.now, &mut link.connection, response);
            }
            Reply::Request(RequestNews::Upload(grant)) => {
                // A peer with an upload counts as authenticated; control limits the number of uploads.
                link.granted = true;
                self.granted(ctx.now, &mut link.connection, grant);
            }
            Reply::Job(done) => {
                let event = self.job_done(ctx.now, done);
                link.events.extend(event);
            }
            Reply::Request(_)
            | Reply::Publication(..)
            | Reply::Subscription(..)
            | Reply::Family(_)
            | Reply::Port(_) => {}
        }
        Next::Stay
    }

    fn advance(&mut self, ctx: &Context<'_>, link: &mut Link) -> Next {
        let event = self.pump(ctx.now, &mut link.connection);
        link.events.extend(event);
        if matches!(self.stage, Stage::Over) { Next::Over } else { Next::Stay }
    }

    fn handle_timeout(&mut self, ctx: &Context<'_>, _link: &mut Link) -> Next {
        if let Stage::Receiving(receiving) = &mut self.stage {
            receiving.retry_at.take_if(|at| *at <= ctx.now.mono);
        }
        Next::Stay
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Receiving(receiving) => receiving.retry_at,
            Stage::Asked | Stage::Told | Stage::Over => None,
        }
    }

    fn takes_upload(&self) -> bool {
        true
    }
}

impl Receiving {
    fn take_parts(&mut self, form: &mut Multipart) -> Result<(), Malformed> {
        while let Some(event) = form.poll()? {
            match event {
                FormEvent::Part { name } => {
                    self.part = match name.as_str() {
                        "file" if !self.has_file => Part::File,
                        "metadata" => Part::Metadata,
                        _ => Part::Other,
                    };
                    self.has_file |= self.part == Part::File;
                }
                FormEvent::Data(data) => match self.part {
                    Part::File => {
                        self.gathered_bytes = self.gathered_bytes.saturating_add(data.len());
                        self.gathered.push(data);
                    }
                    Part::Metadata if self.metadata.len().saturating_add(data.len()) > METADATA_BYTES_MAX => {
                        return Err(Malformed);
                    }
                    Part::Metadata => self.metadata.extend_from_slice(&data),
                    Part::Other => {}
                },
            }
        }
        Ok(())
    }

    /// Returns a job that appends gathered bytes. Bytes of a job that was refused because too many jobs waited come
    /// first.
    fn poll_job(&mut self) -> Option<Job> {
        if self.under_way.is_empty() {
            self.gathered_bytes = 0;
            self.under_way = std::mem::take(&mut self.gathered);
        }
        if self.under_way.is_empty() {
            return None;
        }
        self.is_writing = true;
        let to = AppendTo::Open(Arc::clone(&self.file));
        Some(Job { id: JobId(0), app: None, work: Work::FileAppend { to, data: self.under_way.clone() } })
    }
}
