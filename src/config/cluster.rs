//! `cluster.*`: the directory that the nodes of a cluster share.

use std::fmt;
use std::time::Duration;

use url::{Host, Url};

use super::{Error, Values};
use crate::auth::redact;
use crate::types::NodeId;

/// Longest `cluster.name` and `cluster.region`, in bytes.
const WORD_BYTES_MAX: usize = 64;

/// Handling of publishers while the directory is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutDirectory {
    /// Accept publishers, and claim their ids once the directory is back.
    Accept,
    /// Refuse publishers.
    Refuse,
}

/// The settings of a node.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// `cluster.url`, including the password.
    pub url: String,
    /// `cluster.name`: the prefix of all keys in the directory.
    pub name: String,
    /// `cluster.node`; `None`: the host name.
    pub node: Option<NodeId>,
    /// `cluster.lease`.
    pub lease: Duration,
    /// `cluster.without_directory`.
    pub without_directory: WithoutDirectory,
    /// `cluster.relay_address`: `host:port`, or empty.
    pub relay_address: String,
    /// `cluster.region`.
    pub region: String,
    /// True with `cluster.tier=relay`.
    pub is_regional_relay: bool,
    /// `cluster.public_address`: prefix of this node's URLs, or empty.
    pub public_address: String,
    /// `cluster.redirect`: clients are redirected to the node that has their stream.
    pub redirect: bool,
}

/// Hides the password.
impl fmt::Debug for ClusterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (url, name, node) = (redact(&self.url), &self.name, &self.node);
        f.debug_struct("ClusterSettings").field("url", &url).field("name", name).field("node", node).finish()
    }
}

impl ClusterSettings {
    /// Parses the keys; `None` without `cluster.url`. Even then, all keys are checked.
    pub(super) fn of(values: &Values) -> Result<Option<Self>, Error> {
        let node = match values.text("cluster.node") {
            "" => None,
            text => Some(NodeId::new(text).ok_or_else(|| {
                values
                    .bad("cluster.node", "must be at most 64 letters, digits, dots, hyphens and underscores")
            })?),
        };
        let without_directory = match values.text("cluster.without_directory") {
            "accept" => WithoutDirectory::Accept,
            "refuse" => WithoutDirectory::Refuse,
            _ => return Err(values.bad("cluster.without_directory", "must be accept or refuse")),
        };
        let region = word(values, "cluster.region")?;
        let is_regional_relay = match values.text("cluster.tier") {
            "node" => false,
            "relay" if region.is_empty() => {
                return Err(values.bad("cluster.tier", "is relay, which needs cluster.region"));
            }
            "relay" => true,
            _ => return Err(values.bad("cluster.tier", "must be node or relay")),
        };
        let settings = Self {
            url: values.text("cluster.url").trim().to_owned(),
            name: word(values, "cluster.name")?,
            node,
            lease: Duration::from_secs(values.number("cluster.lease", 1, 3600)?),
            without_directory,
            relay_address: relay_address(values)?,
            region,
            is_regional_relay,
            public_address: public_address(values)?,
            redirect: values.boolean("cluster.redirect")?,
        };
        if settings.url.is_empty() {
            return Ok(None);
        }
        let known = |url: &Url| matches!(url.scheme(), "redis" | "rediss") && url.host_str().is_some();
        if !is_of_sentinels(&settings.url) && !Url::parse(&settings.url).is_ok_and(|url| known(&url)) {
            let reason = "must be redis://HOST, rediss://HOST or redis+sentinel://HOST,HOST/MASTER";
            return Err(values.bad("cluster.url", reason));
        }
        if settings.name.is_empty() {
            return Err(values.bad("cluster.name", "must not be empty"));
        }
        Ok(Some(settings))
    }
}

/// True if a URL names both sentinels and their master.
fn is_of_sentinels(url: &str) -> bool {
    let named = url.strip_prefix("redis+sentinel://").and_then(|rest| {
        let hosts = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
        hosts.split_once('/')
    });
    named.is_some_and(|(hosts, master)| !master.is_empty() && hosts.split(',').all(|host| !host.is_empty()))
}

/// Parses a short value of letters, digits, dots, hyphens and underscores.
fn word(values: &Values, key: &str) -> Result<String, Error> {
    let text = values.text(key).trim();
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if text.len() > WORD_BYTES_MAX || !text.bytes().all(is_part) {
        return Err(values.bad(key, "must be at most 64 letters, digits, dots, hyphens and underscores"));
    }
    Ok(text.to_owned())
}

fn relay_address(values: &Values) -> Result<String, Error> {
    let text = values.text("cluster.relay_address").trim();
    let is_address = text.rsplit_once(':').is_some_and(|(host, port)| {
        Host::parse(host).is_ok() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if text.is_empty() || is_address {
        return Ok(text.to_owned());
    }
    Err(values.bad("cluster.relay_address", "must be HOST:PORT"))
}

/// Parses `cluster.public_address`: a scheme, a host and an optional port.
fn public_address(values: &Values) -> Result<String, Error> {
    let text = values.text("cluster.public_address").trim().trim_end_matches('/');
    let is_origin = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && (url.path(), url.query(), url.fragment()) == ("/", None, None)
            && (url.username(), url.password()) == ("", None)
    };
    if text.is_empty() || Url::parse(text).is_ok_and(|url| is_origin(&url)) {
        return Ok(text.to_owned());
    }
    Err(values.bad("cluster.public_address", "must be http://HOST or https://HOST, with or without a port"))
}

#[cfg(test)]
mod tests {
    use crate::config::ServerSettings;

    use super::*;

    #[test]
    fn without_a_url_there_is_no_cluster_and_with_one_all_else_has_defaults() {
        assert_eq!(ServerSettings::with(&[]).unwrap().cluster(), None);
        let url = ("cluster.url", "redis://u:secret@h:6379");
        let cluster = ServerSettings::with(&[url]).unwrap().cluster().unwrap();
        assert_eq!((&*cluster.name, cluster.node.clone(), cluster.lease.as_secs()), ("millstream", None, 5));
        assert_eq!(cluster.without_directory, WithoutDirectory::Accept);
        assert!(!format!("{cluster:?}").contains("secret"));
        let sentinels = [("cluster.url", "redis+sentinel://u:secret@h:1,i/main/2")];
        let cluster = ServerSettings::with(&sentinels).unwrap().cluster().unwrap();
        assert!(!format!("{cluster:?}").contains("secret"));
        let set = [
            url,
            ("cluster.name", "c"),
            ("cluster.node", "n-1"),
            ("cluster.lease", "2"),
            ("cluster.without_directory", "refuse"),
            ("cluster.relay_address", "[::1]:7000"),
            ("cluster.region", "eu"),
            ("cluster.tier", "relay"),
            ("cluster.public_address", "https://n1.example:5443/"),
            ("cluster.redirect", "true"),
        ];
        let cluster = ServerSettings::with(&set).unwrap().cluster().unwrap();
        assert_eq!((&*cluster.name, cluster.node, cluster.lease.as_secs()), ("c", NodeId::new("n-1"), 2));
        assert_eq!(cluster.without_directory, WithoutDirectory::Refuse);
        assert_eq!((&*cluster.relay_address, &*cluster.region), ("[::1]:7000", "eu"));
        assert!(cluster.is_regional_relay);
        assert_eq!((&*cluster.public_address, cluster.redirect), ("https://n1.example:5443", true));
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_or_without_a_url() {
        for (key, value) in [
            ("cluster.url", "http://h"),
            ("cluster.url", "redis"),
            ("cluster.url", "redis+sentinel://h:1,/main"),
            ("cluster.url", "redis+sentinel://h:1"),
            ("cluster.node", "a b"),
            ("cluster.name", "a{b}"),
            ("cluster.lease", "0"),
            ("cluster.without_directory", "perhaps"),
            ("cluster.relay_address", "h"),
            ("cluster.relay_address", "h:0"),
            ("cluster.region", "a/b"),
            ("cluster.tier", "edge"),
            ("cluster.tier", "relay"),
            ("cluster.public_address", "n1.example"),
            ("cluster.public_address", "rtmp://n1.example"),
            ("cluster.public_address", "http://n1.example/live"),
            ("cluster.public_address", "http://u:p@n1.example"),
            ("cluster.redirect", "perhaps"),
        ] {
            assert!(ServerSettings::with(&[(key, value)]).is_err(), "{key}={value}");
        }
    }
}
