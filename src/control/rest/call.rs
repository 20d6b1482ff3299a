//! A request on its way to its handler.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::config::AppSettings;
use crate::control::Control;
pub(in crate::control) use crate::control::answer::{Origin, Reply};
use crate::control::management::SessionId;
use crate::control::mask::Requester;
use crate::http::{Request, Response};
use crate::types::{Now, StreamKey};

/// Parameters of a path.
pub(super) const PARAMS_MAX: usize = 4;

/// A handler of an application's operation.
pub(super) type AppHandler = fn(&mut Control, Now, &Call<'_>) -> Reply;
/// A handler of an operation of the server.
pub(super) type RootHandler = fn(&mut Control, Now, &RootCall<'_>) -> Reply;

/// The sender of a request to an application.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sender {
    /// A peer, that the application's filters judge.
    Peer(SocketAddr),
    /// A user of the panel, that a login has let in. An administrator is one of the whole server.
    Panel { is_administrator: bool },
}

impl Sender {
    /// The address of a peer.
    pub(super) const fn peer(self) -> Option<SocketAddr> {
        match self {
            Self::Peer(peer) => Some(peer),
            Self::Panel { .. } => None,
        }
    }

    /// Whether an administrator of the whole server asks.
    pub(super) const fn is_administrator(self) -> bool {
        matches!(self, Self::Panel { is_administrator: true })
    }
}

/// A request on its way to the handler of an application's operation.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) requester: Requester,
    pub(super) app: &'a Arc<AppSettings>,
    pub(super) request: &'a Request,
    pub(super) params: [&'a str; PARAMS_MAX],
    /// The address of the client, behind trusted proxies, where nothing else tells who asks.
    pub(super) client: Option<IpAddr>,
    /// Whether an administrator of the whole server asks.
    pub(super) is_administrator: bool,
}

impl Call<'_> {
    /// The stream that the first parameter names.
    pub(super) fn key(&self) -> StreamKey {
        let [id, ..] = self.params;
        StreamKey { app: self.app.name.clone(), id: id.into() }
    }

    /// A query parameter; empty when absent.
    pub(super) fn query(&self, name: &str) -> &str {
        self.request.query_value(name).unwrap_or("")
    }

    /// A query parameter that is a number; the error is the answer to one that is none.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Reply> {
        match self.request.query_value(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| Reply::Now(Response::error(404, "Not Found"))),
        }
    }
}

/// A request on its way to the handler of an operation of the server. It may be there.
#[derive(Debug)]
pub(super) struct RootCall<'a> {
    pub(super) origin: Origin,
    /// The address of the client, behind trusted proxies.
    pub(super) client: IpAddr,
    pub(super) caller: Caller,
    pub(super) request: &'a Request,
    pub(super) params: [&'a str; PARAMS_MAX],
}

impl RootCall<'_> {
    /// A query parameter; empty when absent.
    pub(super) fn query(&self, name: &str) -> &str {
        self.request.query_value(name).unwrap_or("")
    }
}

/// The authenticated caller of an operation of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// An unknown caller.
    Nobody,
    /// The holder of the server's secret: unrestricted, and not a user.
    Token,
    /// A user that is logged in.
    User {
        /// The user's e-mail.
        email: Arc<str>,
        /// The session that the cookie names.
        id: SessionId,
    },
}

impl Caller {
    /// The e-mail of a user; `None` for every other caller.
    pub(super) fn email(&self) -> Option<&str> {
        match self {
            Self::User { email, .. } => Some(email),
            Self::Nobody | Self::Token => None,
        }
    }
}

/// Text of a body that cannot be read.
pub(super) fn bad_request(text: &str) -> Reply {
    Reply::Now(Response::text(400, text.to_owned()))
}
