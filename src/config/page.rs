//! The reference of all settings as a Markdown page (docs/settings.md), made from the table of keys.

use std::fmt::Write as _;

use super::keys::{Effect, Key};
use super::{Level, Schema};

const HEAD: &str = "\
# Settings

All keys of the settings files with their defaults. This page is the output of `millstream settings`; a test compares the two.

- The settings of the server are in `conf/red5.properties`, those of an application in `webapps/{app}/WEB-INF/red5-web.properties`.
- The command line (`--set KEY=VALUE`, `--set app.KEY=VALUE` for all applications) takes precedence over the environment (`MILLSTREAM_KEY`,
  `MILLSTREAM_APP_KEY`, with `_` for `.`), the environment over the files, and the files over the defaults. A value `@FILE` is read from that file.
- A variable that resembles a setting stops the start, and the error names the setting that was probably meant. Any other `MILLSTREAM_` variable is ignored
  with a warning. Variables that Kubernetes adds for services named `millstream` or `millstream-...` (`MILLSTREAM_SERVICE_HOST`,
  `MILLSTREAM_HTTP_PORT=tcp://...`) are ignored without a warning.
- On SIGHUP the server reads the files again. Ports, addresses, certificates, `server.workers` and limits of connections need a restart.
- A file that the server has made says in its first line that it ends with `# End of settings`. If that last line is missing, or if the file is empty,
  contains NUL bytes or ends within a key, it is damaged: its application is not started, and the log has one error. If it is the server's own file,
  nothing is started.
- The panel and `/openapi.json` show each setting by its name.
- *secret*: never printed or logged. *counts when set*: setting the key has an effect even if the value is the default.

";

impl Schema {
    /// Returns the page.
    #[must_use]
    pub fn page(&self) -> String {
        let mut out = HEAD.to_owned();
        for (level, title) in [(Level::Server, "The server"), (Level::App, "An application")] {
            let keys = self.keys(level);
            let _ = writeln!(out, "## {title}\n\n| key | name | default | meaning |\n|---|---|---|---|");
            rows(&mut out, keys, |effect| effect == Effect::Works);
        }
        for (level, of) in [(Level::Server, "of the server"), (Level::App, "of an application")] {
            let keys = self.keys(level);
            let _ = writeln!(
                out,
                "## Settings {of} without effect here\n\nKeys of Ant Media Server. They are kept in the files and given back by the API, so \
                 that files and clients stay valid.\n\n| key | name | default | why |\n|---|---|---|---|"
            );
            rows(&mut out, keys, |effect| effect == Effect::Foreign);
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }
}

fn rows(out: &mut String, keys: &[Key], wanted: fn(Effect) -> bool) {
    for key in keys.iter().filter(|key| wanted(key.effect)) {
        let _ = writeln!(out, "{} |", row(key));
    }
    out.push('\n');
}

/// Starts a table row, without its end.
fn row(key: &Key) -> String {
    let default = match key.default {
        "" => String::new(),
        text => format!("`{}`", text.replace('|', "\\|")),
    };
    let secret = if key.secret { " (*secret*)" } else { "" };
    let explicit = if key.explicit { " (*counts when set*)" } else { "" };
    format!(
        "| `{}` | {} | {default} | {}{secret}{explicit}",
        key.name,
        key.label,
        key.comment.replace('|', "\\|")
    )
}
