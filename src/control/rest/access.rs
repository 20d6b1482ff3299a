//! Who may use the operations of the server (rest.md §9.2), in this order:
//!
//! 1. the dashboard's address filter, for every path: 403 `Not allowed IP`;
//! 2. open operations need nothing more;
//! 3. everything else, what does not exist included, needs a login: 403 `Not authenticated user`, never 401.

use std::net::IpAddr;

use super::routes::{Base, Handler, Policy};
use super::{Found, Origin, Reply, RootCall, find, refuse_type};
use crate::control::Control;
use crate::http::{Request, Response};
use crate::mail::Now;

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// Nobody that is known.
    Nobody,
}

fn refused(message: &str) -> Reply {
    Reply::Now(Response::error(403, message))
}

impl Control {
    /// A request to the server itself; `path` is what follows `/rest/v2` or, outside of the API, all of it.
    pub(super) fn dispatch_root(
        &mut self,
        now: Now,
        origin: Origin,
        base: Base,
        path: Option<&str>,
        request: &Request,
    ) -> Reply {
        let Some(client) =
            self.client_of(origin.peer, request).filter(|client| self.may_see_dashboard(*client))
        else {
            return refused("Not allowed IP");
        };
        let found = path.map_or(Found::Nothing, |path| find(base, request.method, path));
        let caller = Caller::Nobody;
        let Found::Route(route, params) = found else {
            return if base == Base::Server {
                Reply::Now(found.refusal())
            } else {
                refused("Not authenticated user")
            };
        };
        match route.policy {
            Policy::Open | Policy::Dashboard => {}
            Policy::AppFilter | Policy::Login | Policy::System | Policy::Scoped | Policy::Proxied => {
                return refused("Not authenticated user");
            }
        }
        match (refuse_type(route, request), route.handler) {
            (Some(refusal), _) => Reply::Now(refusal),
            (None, Handler::Root(handler)) => {
                handler(self, now, &RootCall { origin, client, caller, request, params })
            }
            (None, Handler::App(_)) => Reply::Now(Response::error(404, "Not Found")),
        }
    }

    /// The addresses that the operator names; while there are neither names nor users, this machine alone.
    fn may_see_dashboard(&self, client: IpAddr) -> bool {
        let server = &self.config.server;
        if server.dashboard_explicit {
            server.dashboard.contains(client)
        } else {
            client.to_canonical().is_loopback()
        }
    }
}
