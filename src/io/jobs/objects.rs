//! Files in object storage, by requests of S3, which `rusty-s3` signs and ureq sends.
//!
//! A small file is sent in one request, a larger one in parts. A part that failed is sent again. After its last
//! attempt, the upload is given up and its parts are removed. URLs contain signatures, so no error text contains a URL.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use rusty_s3::actions::{CreateMultipartUpload, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use ureq::{Agent, SendBody};
use url::Url;

use super::roles::Roles;
use super::{FilePaths, files, posts};
use crate::config::S3Settings;
use crate::http::media_type;
use crate::jobs::{BlockSource, FileError, ObjectAction, ObjectOutcome, ObjectWork, READ_BYTES_MAX};

/// Minimum size of a part. A file of at most this size is sent in one request.
const PART_BYTES_MIN: u64 = 16 << 20;
/// Maximum number of parts of an upload, set by S3.
const PARTS_MAX: u64 = 10_000;
/// Maximum number of times that a part is sent.
const ATTEMPTS: usize = 3;
/// Validity of a signature.
const SIGNED_FOR: Duration = Duration::from_secs(3600);
/// The timeout of a request without a body.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Minimum rate of a body in bytes per second. The timeout of a body is computed from it.
const RATE_MIN: u64 = 32 << 10;
/// Maximum bytes read of a response.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Header fields of the request that are signed.
type Fields = Vec<(&'static str, String)>;

pub(super) fn run(agent: &Agent, paths: &FilePaths, roles: &Roles, work: &ObjectWork) -> ObjectOutcome {
    let credentials = credentials(&work.storage, roles, &paths.options.environment);
    let remote = credentials.and_then(|credentials| Remote::of(agent, credentials, work));
    let done = remote.and_then(|remote| match &work.action {
        ObjectAction::Put { path } => match files::open(paths, path) {
            Ok(opened) => remote.put(&opened.file, opened.length).map(|()| ObjectOutcome::Done),
            Err(FileError::NotFound | FileError::Directory) => Ok(ObjectOutcome::NoFile),
            Err(FileError::Failed) => Err("the file cannot be read".to_owned()),
        },
        ObjectAction::Remove => remote.remove().map(|()| ObjectOutcome::Done),
    });
    done.unwrap_or_else(ObjectOutcome::Failed)
}

/// Returns the keys from the settings. If there are none, returns the role's credentials while they are valid.
fn credentials(
    settings: &S3Settings,
    roles: &Roles,
    environment: &[(String, String)],
) -> Result<Credentials, String> {
    if let Some(keys) = &settings.keys {
        return Ok(Credentials::new(keys.access.reveal(), keys.secret.reveal()));
    }
    let of_role =
        roles.credentials(environment).map_err(|reason| format!("no credentials of a role: {reason}"))?;
    let [key, secret, token] =
        [&of_role.access_key, &of_role.secret_key, &of_role.token].map(|one| one.reveal());
    Ok(Credentials::new_with_token(key, secret, token))
}

/// An object in a storage.
struct Remote<'a> {
    agent: &'a Agent,
    bucket: Bucket,
    credentials: Credentials,
    settings: &'a S3Settings,
    name: &'a str,
}

impl<'a> Remote<'a> {
    fn of(agent: &'a Agent, credentials: Credentials, work: &'a ObjectWork) -> Result<Self, String> {
        let settings = &*work.storage;
        let style = if settings.path_style { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let (name, region) = (settings.bucket.clone(), settings.region.clone());
        let bucket = Bucket::new(settings.endpoint.clone(), style, name, region)
            .map_err(|_| "the bucket has no URL".to_owned())?;
        Ok(Self { agent, bucket, credentials, settings, name: &work.name })
    }

    /// Returns the header fields of the request that creates the object.
    fn fields(&self) -> Fields {
        let settings = self.settings;
        let all = [
            ("x-amz-acl", settings.permission.as_str()),
            ("x-amz-storage-class", &settings.storage_class),
            ("cache-control", &settings.cache_control),
            ("content-type", media_type(self.name)),
        ];
        all.into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name, value.to_owned()))
            .collect()
    }

    fn put(&self, file: &Arc<dyn BlockSource>, length: u64) -> Result<(), String> {
        if length > PART_BYTES_MIN {
            return self.put_parts(file, length);
        }
        let fields = self.fields();
        let mut action = self.bucket.put_object(Some(&self.credentials), self.name);
        sign_fields(&mut action, &fields);
        retried(|| self.send("PUT", action.sign(SIGNED_FOR), &fields, Some(Blocks::of(file, 0, length))))
            .map(drop)
    }

    fn put_parts(&self, file: &Arc<dyn BlockSource>, length: u64) -> Result<(), String> {
        let fields = self.fields();
        let mut action = self.bucket.create_multipart_upload(Some(&self.credentials), self.name);
        sign_fields(&mut action, &fields);
        let begun = retried(|| self.send("POST", action.sign(SIGNED_FOR), &fields, None))?;
        let begun = CreateMultipartUpload::parse_response(&begun.body)
            .map_err(|_| "no upload was begun".to_owned())?;
        let id = begun.upload_id();
        let sent = self.send_parts(file, length, id);
        if sent.is_err() {
            let action = self.bucket.abort_multipart_upload(Some(&self.credentials), self.name, id);
            let _ = self.send("DELETE", action.sign(SIGNED_FOR), &Fields::new(), None);
        }
        sent
    }

    fn send_parts(&self, file: &Arc<dyn BlockSource>, length: u64, id: &str) -> Result<(), String> {
        let part_bytes = length.div_ceil(PARTS_MAX).max(PART_BYTES_MIN);
        let mut tags = Vec::new();
        let (mut at, mut number) = (0u64, 0u16);
        while at < length {
            number = number.saturating_add(1);
            let end = at.saturating_add(part_bytes).min(length);
            let action = self.bucket.upload_part(Some(&self.credentials), self.name, number, id);
            let body = || Some(Blocks::of(file, at, end));
            let answer = retried(|| self.send("PUT", action.sign(SIGNED_FOR), &Fields::new(), body()))?;
            tags.push(answer.tag.ok_or("a part has no tag")?);
            at = end;
        }
        let tags = tags.iter().map(String::as_str);
        let action = self.bucket.complete_multipart_upload(Some(&self.credentials), self.name, id, tags);
        let (url, body) = (action.sign(SIGNED_FOR), Bytes::from(action.body()));
        let answer =
            retried(|| self.send("POST", url.clone(), &Fields::new(), Some(Blocks::memory(body.clone()))))?;
        // The storage may send the head of a successful response and then report an error in its body.
        match code_of(&answer.body) {
            Some(code) => Err(code),
            None => Ok(()),
        }
    }

    fn remove(&self) -> Result<(), String> {
        let action = self.bucket.delete_object(Some(&self.credentials), self.name);
        match self.send("DELETE", action.sign(SIGNED_FOR), &Fields::new(), None) {
            Err(reason) if reason.starts_with("404") => Ok(()),
            done => done.map(drop),
        }
    }

    fn send(&self, method: &str, url: Url, fields: &Fields, body: Option<Blocks>) -> Result<Answer, String> {
        let length = body.as_ref().map_or(0, Blocks::left);
        let timeout = TIMEOUT.saturating_add(Duration::from_secs(length / RATE_MIN));
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(url.as_str())
            .header("Connection", "close")
            .header("Content-Length", length);
        for (name, value) in fields {
            request = request.header(*name, value);
        }
        let mut body = body.unwrap_or_else(|| Blocks::memory(Bytes::new()));
        let request = request.body(SendBody::from_reader(&mut body)).map_err(|_| "no request".to_owned())?;
        let configured = self
            .agent
            .configure_request(request)
            .timeout_global(Some(timeout))
            .allow_non_standard_methods(true)
            .build();
        let mut response = self.agent.run(configured).map_err(|error| posts::reason(&error))?;
        let status = response.status().as_u16();
        let tag = response.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let mut text = Vec::new();
        let read = response.body_mut().as_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut text);
        read.map_err(|error| error.kind().to_string())?;
        let text = String::from_utf8_lossy(&text).into_owned();
        if (200..300).contains(&status) {
            return Ok(Answer { tag, body: text });
        }
        Err(format!("{status} {}", code_of(&text).unwrap_or_default()))
    }
}

/// A successful response.
struct Answer {
    tag: Option<String>,
    body: String,
}

/// Repeats a request that has failed, unless the storage would refuse it again.
fn retried(mut send: impl FnMut() -> Result<Answer, String>) -> Result<Answer, String> {
    let mut answer = send();
    for _ in 1..ATTEMPTS {
        match &answer {
            Err(reason) if !reason.starts_with('4') => answer = send(),
            Ok(_) | Err(_) => break,
        }
    }
    answer
}

fn sign_fields<'a>(action: &mut impl S3Action<'a>, fields: &Fields) {
    for (name, value) in fields {
        action.headers_mut().insert(*name, value.clone());
    }
}

/// Returns the error code in an S3 error response, a single word.
fn code_of(body: &str) -> Option<String> {
    let (_, code) = body.split_once("<Error>")?.1.split_once("<Code>")?;
    let (code, _) = code.split_once("</Code>")?;
    Some(code.chars().filter(char::is_ascii_alphanumeric).take(64).collect())
}

/// A range of a file, or bytes in memory, as a reader.
struct Blocks {
    file: Option<Arc<dyn BlockSource>>,
    at: u64,
    end: u64,
    block: Bytes,
}

impl Blocks {
    fn of(file: &Arc<dyn BlockSource>, at: u64, end: u64) -> Self {
        Self { file: Some(Arc::clone(file)), at, end, block: Bytes::new() }
    }

    const fn memory(block: Bytes) -> Self {
        Self { file: None, at: 0, end: 0, block }
    }

    fn left(&self) -> u64 {
        let held = u64::try_from(self.block.len()).unwrap_or(u64::MAX);
        self.end.saturating_sub(self.at).saturating_add(held)
    }
}

impl Read for Blocks {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if let Some(file) = self.file.as_ref().filter(|_| self.block.is_empty() && self.at < self.end) {
            let length = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
            self.block = file.read_block(self.at, length.min(READ_BYTES_MAX));
            self.at = self.at.saturating_add(u64::try_from(self.block.len()).unwrap_or(u64::MAX));
            if self.block.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let count = to.len().min(self.block.len());
        self.block.split_to(count).copy_to_slice(to.get_mut(..count).unwrap_or_default());
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_by_its_code_alone() {
        let body = "<?xml?><Error><Code>AccessDenied</Code><Message>key AKIA</Message></Error>";
        assert_eq!(code_of(body).as_deref(), Some("AccessDenied"));
        assert_eq!(code_of("<Error><Code>a b\r\nc</Code></Error>").as_deref(), Some("abc"));
        assert_eq!(code_of("<CompleteMultipartUploadResult/>"), None);
    }
}
