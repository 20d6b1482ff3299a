//! Settings of the environment: `MILLSTREAM_KEY` of the server, `MILLSTREAM_APP_KEY` of all applications.
//!
//! A variable whose name resembles a setting is taken for a mistake and stops the start: if the key of a restriction is
//! mistyped, the server must not run without the restriction. Any other variable with the prefix was probably set by
//! the container platform, and is ignored with a warning. Variables that Kubernetes adds for services whose names begin
//! with `millstream` are ignored silently.

use super::super::remarks::Remarks;
use super::super::{Error, Key, Level, properties, suggestion};
use super::Options;

/// Prefix of variables that are settings.
pub(in crate::config) const PREFIX: &str = "MILLSTREAM_";
/// Prefix of settings of applications, after [`PREFIX`].
const APP: &str = "APP_";
/// Maximum number of ignored variables named in the warning.
const NAMED_MAX: usize = 8;

/// Settings of the environment, for the server and for all applications.
#[derive(Default)]
pub(super) struct Environment {
    pub(super) server: Vec<(String, String)>,
    pub(super) apps: Vec<(String, String)>,
    /// Names that are not settings and do not resemble any.
    ignored: Vec<String>,
}

impl Environment {
    /// Sorts the variables into settings of the server, settings of applications, and ignored ones.
    /// Adds a fault for each variable that resembles a setting but is not one.
    pub(super) fn read(options: &Options, faults: &mut Vec<Error>) -> Self {
        let mut found = Self::default();
        let mut variables: Vec<_> = options.environment.iter().collect();
        variables.sort();
        for (name, value) in variables {
            let Some(rest) = name.strip_prefix(PREFIX).filter(|rest| *rest != "LOG") else { continue };
            let (table, list, key): (&[Key], _, _) = match rest.strip_prefix(APP) {
                Some(key) => (options.schema.keys(Level::App), &mut found.apps, key),
                None => (options.schema.keys(Level::Server), &mut found.server, rest),
            };
            if is_service_link(rest, value) {
                continue;
            }
            if let Some(key) = table.iter().find(|known| variable_of(known.name) == key) {
                list.push((key.name.to_owned(), value.clone()));
            } else if let Some(reason) = suggestion::mistyped_variable(options.schema, name) {
                faults.push(Error::Variable { name: properties::printable(name), reason });
            } else {
                found.ignored.push(properties::printable(name));
            }
        }
        found
    }

    /// Reports the ignored variables, in one line.
    pub(super) fn remark(&self, remarks: &mut Remarks) {
        if self.ignored.is_empty() {
            return;
        }
        let named = self.ignored.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = if self.ignored.len() > NAMED_MAX { ", ..." } else { "" };
        remarks.push(format!("the environment: variables that are no settings, ignored: {named}{more}"));
    }
}

/// Returns the name of the variable that sets a key, without the prefix `MILLSTREAM_`.
pub(in crate::config) fn variable_of(key: &str) -> String {
    key.to_ascii_uppercase().replace('.', "_")
}

/// True for the variables that Kubernetes adds to each pod for a service whose name begins with `millstream`. For the
/// service `millstream` they are `SERVICE_HOST`, `PORT=tcp://10.0.0.1:80`, `PORT_80_TCP_ADDR` and others; for
/// `millstream-http` they have the further prefix `HTTP_`. The `HTTP_PORT` of the latter service differs from the
/// setting `http.port` only by its value.
fn is_service_link(rest: &str, value: &str) -> bool {
    let words: Vec<&str> = rest.split('_').collect();
    (0..words.len()).any(|at| match words.get(at..).unwrap_or_default() {
        ["SERVICE", "HOST" | "PORT"] | ["SERVICE", "PORT", _, ..] => true,
        ["PORT"] => is_link_address(value),
        ["PORT", number, "TCP" | "UDP" | "SCTP"] => is_number(number),
        ["PORT", number, "TCP" | "UDP" | "SCTP", "PROTO" | "PORT" | "ADDR"] => is_number(number),
        _ => false,
    })
}

fn is_link_address(value: &str) -> bool {
    ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
}

fn is_number(word: &str) -> bool {
    word.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<(Environment, Vec<String>), String> {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let options = Options {
            environment: environment.collect(),
            schema: crate::protocol::schema(),
            ..Options::default()
        };
        let mut faults = Vec::new();
        let environment = Environment::read(&options, &mut faults);
        faults.first().map_or(Ok(()), |fault| Err(fault.to_string()))?;
        let mut remarks = Remarks::default();
        environment.remark(&mut remarks);
        Ok((environment, remarks.each()))
    }

    /// All variables of two services, as the kubelet makes them.
    #[test]
    fn c_01_service_links_are_neither_settings_nor_mistakes() {
        let mut links = Vec::new();
        for (service, port) in [("MILLSTREAM", "1935"), ("MILLSTREAM_HTTP", "5080"), ("MILLSTREAM_APP", "80")]
        {
            let address = format!("tcp://10.0.171.239:{port}");
            links.extend([
                (format!("{service}_SERVICE_HOST"), "10.0.171.239".to_owned()),
                (format!("{service}_SERVICE_PORT"), port.to_owned()),
                (format!("{service}_SERVICE_PORT_RTMP"), port.to_owned()),
                (format!("{service}_SERVICE_PORT_RTMP_TLS"), port.to_owned()),
                (format!("{service}_PORT"), address.clone()),
                (format!("{service}_PORT_{port}_TCP"), address),
                (format!("{service}_PORT_{port}_TCP_PROTO"), "tcp".to_owned()),
                (format!("{service}_PORT_{port}_TCP_PORT"), port.to_owned()),
                (format!("{service}_PORT_{port}_TCP_ADDR"), "10.0.171.239".to_owned()),
                (format!("{service}_PORT_4200_UDP"), "udp://10.0.171.239:4200".to_owned()),
            ]);
        }
        let links: Vec<(&str, &str)> = links.iter().map(|(name, value)| (&**name, &**value)).collect();
        let (environment, remarks) = read(&links).unwrap();
        assert_eq!((environment.server, environment.apps, remarks), (vec![], vec![], vec![]));
        // No setting's variable is mistaken for a service link.
        let schema = crate::protocol::schema();
        for key in [Level::Server, Level::App].into_iter().flat_map(|level| schema.keys(level)) {
            assert!(!is_service_link(&variable_of(key.name), "1"), "{}", key.name);
        }
        let (environment, _) = read(&[("MILLSTREAM_HTTP_PORT", "5081")]).unwrap();
        assert_eq!(environment.server, [("http.port".to_owned(), "5081".to_owned())]);
    }

    #[test]
    fn c_01_a_name_that_resembles_a_setting_is_a_mistake_and_any_other_is_ignored_aloud() {
        for (name, meant) in [
            ("MILLSTREAM_HTTP_PROT", "MILLSTREAM_HTTP_PORT"),
            ("MILLSTREAM_http_port", "MILLSTREAM_HTTP_PORT"),
            ("MILLSTREAM_APP_HTTP_PORT", "MILLSTREAM_HTTP_PORT"),
            ("MILLSTREAM_APP_GOPCASH", "MILLSTREAM_APP_GOPCACHE"),
            ("MILLSTREAM_GOPCACHE", "MILLSTREAM_APP_GOPCACHE"),
            ("MILLSTREAM_APP_PLAY_TOKEN_CONTROL_ENABLED", "MILLSTREAM_APP_PLAYTOKENCONTROLENABLED"),
        ] {
            let error = read(&[(name, "1")]).map(|(_, remarks)| remarks).unwrap_err();
            assert!(error.contains(name) && error.ends_with(&format!("did you mean {meant}?")), "{error}");
        }
        let (environment, remarks) = read(&[
            ("MILLSTREAM_WHAT", "x"),
            ("MILLSTREAM_PORT", "8080"),
            ("MILLSTREAM_VERSION", "1"),
            ("MILLSTREAM_HOME", "/data"),
            ("MILLSTREAM_HOST", "media.example"),
            ("MILLSTREAM_PASSWORD", "s"),
            ("MILLSTREAM_DB_TYP", "mapdb"),
            ("MILLSTREAM_IMAGE", "registry.example/millstream:1"),
            ("MILLSTREAM_LOG", "info"),
            ("PATH", "/bin"),
        ])
        .unwrap();
        assert_eq!((environment.server, environment.apps), (vec![], vec![]));
        assert_eq!(
            remarks,
            [
                "the environment: variables that are no settings, ignored: MILLSTREAM_DB_TYP, MILLSTREAM_HOME, MILLSTREAM_HOST, \
                 MILLSTREAM_IMAGE, MILLSTREAM_PASSWORD, MILLSTREAM_PORT, MILLSTREAM_VERSION, MILLSTREAM_WHAT"
            ]
        );
        let many: Vec<(String, &str)> = (0..30).map(|n| (format!("MILLSTREAM_X{n}\nY"), "")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, *value)).collect();
        let (_, remarks) = read(&many).unwrap();
        assert!(
            remarks.len() == 1 && remarks[0].ends_with(", ...") && !remarks[0].contains('\n'),
            "{remarks:?}"
        );
    }
}
