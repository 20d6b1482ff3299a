//! A request as its handler gets it: with its sender, the parameters of its path, and its application, if any.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::config::AppSettings;
use crate::control::Control;
pub(in crate::control) use crate::control::answer::{Origin, Reply};
use crate::control::management::SessionId;
use crate::control::mask::Requester;
use crate::http::{Request, Response};
use crate::types::{Now, StreamKey};

/// Maximum number of parameters of a path.
pub(super) const PARAMS_MAX: usize = 4;

/// A handler of an application's operation.
pub(super) type AppHandler = fn(&mut Control, Now, &Call<'_>) -> Reply;
/// A handler of an operation of the server.
pub(super) type RootHandler = fn(&mut Control, Now, &RootCall<'_>) -> Reply;

/// The sender of a request to an application.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sender {
    /// A peer, subject to the application's filters.
    Peer(SocketAddr),
    /// A user of the panel, who has logged in, or a caller with the server's token. The flag is true for administrators
    /// of the whole server.
    Panel { is_administrator: bool },
}

impl Sender {
    /// Returns the address of a peer.
    pub(super) const fn peer(self) -> Option<SocketAddr> {
        match self {
            Self::Peer(peer) => Some(peer),
            Self::Panel { .. } => None,
        }
    }

    /// True if the sender is an administrator of the whole server.
    pub(super) const fn is_administrator(self) -> bool {
        matches!(self, Self::Panel { is_administrator: true })
    }
}

/// A request to an operation of an application.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) requester: Requester,
    pub(super) app: &'a Arc<AppSettings>,
    pub(super) request: &'a Request,
    pub(super) params: [&'a str; PARAMS_MAX],
    /// Address of the client, as reported by trusted proxies; `None` if a login or token identifies the sender.
    pub(super) client: Option<IpAddr>,
    /// True if the sender is an administrator of the whole server.
    pub(super) is_administrator: bool,
}

impl Call<'_> {
    /// Returns the stream that the first parameter names.
    pub(super) fn key(&self) -> StreamKey {
        let [id, ..] = self.params;
        StreamKey { app: self.app.name.clone(), id: id.into() }
    }

    /// Returns a query parameter; empty if absent.
    pub(super) fn query(&self, name: &str) -> &str {
        self.request.query_value(name).unwrap_or("")
    }

    /// Returns a numeric query parameter; if its text is no number, the error is the answer to send.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Reply> {
        match self.request.query_value(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| Reply::Now(Response::error(404, "Not Found"))),
        }
    }
}

/// A request to an operation of the server, after the access checks.
#[derive(Debug)]
pub(super) struct RootCall<'a> {
    pub(super) origin: Origin,
    /// Address of the client, as reported by trusted proxies.
    pub(super) client: IpAddr,
    pub(super) caller: Caller,
    pub(super) request: &'a Request,
    pub(super) params: [&'a str; PARAMS_MAX],
}

impl RootCall<'_> {
    /// Returns a query parameter; empty if absent.
    pub(super) fn query(&self, name: &str) -> &str {
        self.request.query_value(name).unwrap_or("")
    }
}

/// The caller of an operation of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// A caller without login or token.
    Nobody,
    /// The holder of the server's secret, with all rights, who is not a user.
    Token,
    /// A logged-in user.
    User {
        /// E-mail of the user.
        email: Arc<str>,
        /// Session that the cookie names.
        id: SessionId,
    },
}

impl Caller {
    /// Returns the e-mail of a user; `None` for other callers.
    pub(super) fn email(&self) -> Option<&str> {
        match self {
            Self::User { email, .. } => Some(email),
            Self::Nobody | Self::Token => None,
        }
    }
}

/// Makes the answer to a request with a body that cannot be read.
pub(super) fn bad_request(text: &str) -> Reply {
    Reply::Now(Response::text(400, text.to_owned()))
}
