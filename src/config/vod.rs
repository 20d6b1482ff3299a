//! Settings of an application for uploads, and for storing playable files elsewhere.

use std::sync::Arc;

use url::Url;

use super::Error;
use super::values::Values;
use crate::auth::access::Secret;

/// Bit in `uploadExtensionsToS3` that selects files.
const FILES: i32 = 1;

/// Settings of playable files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VodSettings {
    /// `upload.max_bytes`: largest uploaded file.
    pub upload_bytes_max: u64,
    /// Object storage to which files are uploaded; `None`: files stay on this machine only.
    pub s3: Option<Arc<S3Settings>>,
    /// Redirect of requests for missing files, if set.
    pub forwarding: Option<Arc<Forwarding>>,
}

/// Redirect for missing files, for example after they were moved to object storage with its own CDN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarding {
    /// `httpForwardingExtension`, without dots.
    extensions: Vec<String>,
    /// `httpForwardingBaseURL`, without a trailing slash.
    base: String,
}

impl Forwarding {
    /// Parses the two keys; `None` unless both are set, as in Ant Media Server.
    fn read(values: &Values) -> Result<Option<Arc<Self>>, Error> {
        let base = values.text("httpForwardingBaseURL").trim();
        let named = values.text("httpForwardingExtension").split(',');
        let extensions = named.map(|name| name.trim().trim_start_matches('.').to_owned());
        let extensions: Vec<String> = extensions.filter(|name| !name.is_empty()).collect();
        if base.is_empty() {
            return Ok(None);
        }
        let is_usable = |url: &Url| {
            matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.fragment().is_none()
        };
        let url = Url::parse(base).ok().filter(is_usable);
        let url = url.ok_or_else(|| {
            values.bad("httpForwardingBaseURL", "must be an http or https URL without a query")
        })?;
        let base = url.as_str().trim_end_matches('/').to_owned();
        Ok((!extensions.is_empty()).then(|| Arc::new(Self { extensions, base })))
    }

    /// Returns the URL of a file; `path` is below the application (`streams/a.mp4`).
    #[must_use]
    pub fn location(&self, path: &str) -> Option<String> {
        const PLAIN: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
            .remove(b'/')
            .remove(b'-')
            .remove(b'_')
            .remove(b'.')
            .remove(b'~');
        let (_, extension) = path.rsplit_once('.')?;
        let is_named = self.extensions.iter().any(|named| named.eq_ignore_ascii_case(extension));
        let path = percent_encoding::utf8_percent_encode(path, PLAIN);
        is_named.then(|| format!("{}/{path}", self.base))
    }
}

/// An S3-compatible object storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Settings {
    /// `s3Endpoint`, or else the endpoint of the region.
    pub endpoint: Url,
    /// `s3RegionName`.
    pub region: String,
    /// `s3BucketName`.
    pub bucket: String,
    /// `s3AccessKey` and `s3SecretKey`; `None`: credentials from this machine's role.
    pub keys: Option<S3Keys>,
    /// True if the bucket is in the path instead of the host name: `s3PathStyleAccessEnabled`, or any explicit
    /// endpoint.
    pub path_style: bool,
    /// `s3StreamsFolderPath`: prefix of the names of objects.
    pub folder: String,
    /// `s3Permission`, in the form of `x-amz-acl`; empty: the bucket's default.
    pub permission: String,
    /// `s3StorageClass`; empty: the bucket's default.
    pub storage_class: String,
    /// `s3CacheControl`; empty: no header field.
    pub cache_control: String,
    /// `s3.keep_local`: whether the local file stays after the upload.
    pub keeps_local: bool,
}

/// Credentials of an object storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Keys {
    /// `s3AccessKey`.
    pub access: Secret,
    /// `s3SecretKey`.
    pub secret: Secret,
}

/// Parses the settings.
pub(super) fn vod(values: &Values) -> Result<VodSettings, Error> {
    let upload_bytes_max = values.number("upload.max_bytes", 0u64, 1 << 50)?;
    let what = values.number("uploadExtensionsToS3", i32::MIN, i32::MAX)?;
    let is_wanted = values.boolean("s3RecordingEnabled")? && what & FILES != 0;
    let s3 = if is_wanted { Some(Arc::new(s3(values)?)) } else { None };
    Ok(VodSettings { upload_bytes_max, s3, forwarding: Forwarding::read(values)? })
}

fn s3(values: &Values) -> Result<S3Settings, Error> {
    let text = |key| match values.text(key).trim() {
        "null" => "",
        text => text,
    };
    let region = Some(text("s3RegionName")).filter(|region| !region.is_empty()).unwrap_or("us-east-1");
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    for (key, value) in [("s3BucketName", text("s3BucketName")), ("s3RegionName", region)] {
        if value.is_empty() || !is_name(value) {
            return Err(values.bad(key, "is needed for s3RecordingEnabled, and is a name"));
        }
    }
    let keys = match (text("s3AccessKey"), text("s3SecretKey")) {
        ("", "") => None,
        ("", _) => return Err(values.bad("s3AccessKey", "is needed with s3SecretKey, or neither")),
        (_, "") => return Err(values.bad("s3SecretKey", "is needed with s3AccessKey, or neither")),
        (access, secret) => Some(S3Keys { access: Secret::new(access), secret: Secret::new(secret) }),
    };
    let given = text("s3Endpoint");
    let address = match given {
        "" => format!("https://s3.{region}.amazonaws.com"),
        given if given.contains("://") => given.to_owned(),
        given => format!("https://{given}"),
    };
    let endpoint = Url::parse(&address).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.query().is_none()
    });
    let endpoint = endpoint.ok_or_else(|| values.bad("s3Endpoint", "must be an http or https URL"))?;
    for (key, value) in [("s3Permission", text("s3Permission")), ("s3StorageClass", text("s3StorageClass"))] {
        if !is_name(value) {
            return Err(values.bad(key, "must be a name"));
        }
    }
    let cache_control = text("s3CacheControl");
    if !cache_control.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return Err(values.bad("s3CacheControl", "must be the text of a header field"));
    }
    Ok(S3Settings {
        endpoint,
        region: region.to_owned(),
        bucket: text("s3BucketName").to_owned(),
        keys,
        path_style: values.boolean("s3PathStyleAccessEnabled")? || !given.is_empty(),
        folder: text("s3StreamsFolderPath").trim_matches('/').to_owned(),
        permission: text("s3Permission").to_ascii_lowercase(),
        storage_class: text("s3StorageClass").to_ascii_uppercase(),
        cache_control: cache_control.to_owned(),
        keeps_local: values.boolean("s3.keep_local")?,
    })
}

#[cfg(test)]
mod tests {
    use crate::config::AppSettings;

    const KEYS: [(&str, &str); 4] = [
        ("s3RecordingEnabled", "true"),
        ("s3AccessKey", "someone"),
        ("s3SecretKey", "a secret of somebody"),
        ("s3BucketName", "films"),
    ];

    #[test]
    fn files_of_some_extensions_are_elsewhere() {
        let of = |extension, base| {
            let keys = [("httpForwardingExtension", extension), ("httpForwardingBaseURL", base)];
            AppSettings::with("a", &keys).map(|app| app.vod.forwarding)
        };
        let cdn = of("mp4, .WEBM", "https://cdn.example/x/").unwrap().unwrap();
        let found = |path| cdn.location(path);
        assert_eq!(found("streams/a b.mp4").as_deref(), Some("https://cdn.example/x/streams/a%20b.mp4"));
        assert_eq!(found("streams/a.webm").as_deref(), Some("https://cdn.example/x/streams/a.webm"));
        assert_eq!(
            (found("streams/a.m3u8"), found("streams/xmp4"), found("streams/mp4")),
            (None, None, None)
        );
        assert_eq!(of("", "https://cdn.example").unwrap(), None);
        assert_eq!(of("mp4", "").unwrap(), None);
        for bad in ["cdn.example", "ftp://cdn.example", "https://cdn.example/?a=b", "javascript:x"] {
            assert!(of("mp4", bad).unwrap_err().to_string().starts_with("httpForwardingBaseURL"), "{bad}");
        }
    }

    #[test]
    fn where_files_are_moved_to() {
        let with =
            |more: &[(&str, &str)]| AppSettings::with("a", &[&KEYS[..], more].concat()).map(|app| app.vod.s3);
        let aws = with(&[("s3RegionName", "eu-west-3")]).unwrap().unwrap();
        assert_eq!((aws.endpoint.as_str(), aws.path_style), ("https://s3.eu-west-3.amazonaws.com/", false));
        assert_eq!((aws.permission.as_str(), aws.storage_class.as_str()), ("public-read", "STANDARD"));
        let own = with(&[("s3Endpoint", "http://10.0.0.1:9000")]).unwrap().unwrap();
        assert_eq!((own.endpoint.as_str(), own.path_style), ("http://10.0.0.1:9000/", true));
        assert_eq!(aws.keys.as_ref().map(|keys| keys.access.reveal()), Some("someone"));
        let role = with(&[("s3AccessKey", ""), ("s3SecretKey", "")]).unwrap().unwrap();
        assert_eq!(role.keys, None, "those of the machine's role");
        let own = with(&[("s3PathStyleAccessEnabled", "true"), ("s3StreamsFolderPath", "/a/")]);
        let own = own.unwrap().unwrap();
        assert_eq!((own.path_style, own.folder.as_str()), (true, "a"));
        let own = with(&[("s3StorageClass", "glacier"), ("s3CacheControl", "no-store")]).unwrap().unwrap();
        assert_eq!((own.storage_class.as_str(), own.cache_control.as_str()), ("GLACIER", "no-store"));
        assert_eq!(with(&[("uploadExtensionsToS3", "6")]).unwrap(), None, "files are none of it");
        assert!(!format!("{own:?}").contains("secret of"));
        for (key, value) in [
            ("s3BucketName", ""),
            ("s3SecretKey", ""),
            ("s3AccessKey", ""),
            ("s3BucketName", "a/b"),
            ("s3Endpoint", "ftp://h"),
            ("s3Endpoint", "http://user@h"),
            ("s3Permission", "public\r\nX: y"),
            ("s3CacheControl", "a\r\nb"),
        ] {
            let error = with(&[(key, value)]).unwrap_err().to_string();
            assert!(error.starts_with(key) && !error.contains("secret of"), "{error}");
        }
        assert!(AppSettings::with("a", &KEYS[1..]).unwrap().vod.s3.is_none());
    }
}
