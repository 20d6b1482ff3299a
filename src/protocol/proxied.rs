//! Listeners whose connections begin with a PROXY header (`server.proxy_protocol`).

use std::sync::Arc;

use super::Listener;
use super::row::Protocol;
use crate::config::group::HTTP;
use crate::config::{Error, Extensions, Key, Section, ServerSettings, Values, key};

const KEY: &str = "server.proxy_protocol";
/// The value that means every listener.
const ALL: &str = "all";

const SERVER: &[Key] = &[key(
    HTTP,
    KEY,
    "",
    "Listeners behind PROXY protocol",
    "Listeners that accept only connections with a PROXY header from trusted proxies: names as in the ready line, or all",
)];

/// The entry of PROXY headers in the table of protocols ([`super::registry`]).
pub(super) static PROTOCOL: Protocol = Protocol { section: &SECTION, ..Protocol::NONE };

static SECTION: Section = Section {
    server: SERVER,
    read_server: |values| Ok(Extensions::of(Proxied::read(values)?)),
    ..Section::NONE
};

/// Names of the listeners whose connections begin with a PROXY header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxied(Arc<[&'static str]>);

impl Proxied {
    /// Reads the listeners from the settings of the server.
    #[must_use]
    pub fn of(server: &ServerSettings) -> Self {
        server.protocols.get().cloned().unwrap_or_else(|| Self(Arc::default()))
    }

    /// True if connections of a listener begin with a PROXY header.
    #[must_use]
    pub fn has(&self, listener: &Listener) -> bool {
        self.0.contains(&listener.name)
    }

    fn read(values: &Values) -> Result<Self, Error> {
        let text = values.text(KEY).trim();
        if text == ALL {
            return Ok(Self(Listener::all().map(|listener| listener.name).collect()));
        }
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let named = names.map(|name| Listener::named(name).map(|listener| listener.name));
        named.collect::<Option<_>>().map(Self).ok_or_else(|| {
            let known: Vec<&str> = Listener::all().map(|listener| listener.name).collect();
            values.bad(KEY, format!("must be of {}, or {ALL}", known.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;

    #[test]
    fn listeners_are_named_as_the_ready_line_has_them() {
        let of = |text: &str| ServerSettings::of(schema(), &[(KEY, text)]).map(|server| Proxied::of(&server));
        let all = || Listener::all();
        assert!(!all().any(|listener| of("").unwrap().has(listener)));
        assert!(all().all(|listener| of("all").unwrap().has(listener)));
        for one in all() {
            let proxied = of(&format!(" {} ,", one.name)).unwrap();
            assert!(
                all().all(|listener| proxied.has(listener) == (listener.name == one.name)),
                "{}",
                one.name
            );
        }
        assert!(of("nothing").unwrap_err().to_string().starts_with(KEY));
    }
}
