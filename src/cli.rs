//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::prelude::*;

use crate::bench;
use crate::config::Options;
use crate::import;
use crate::protocol::{self, load};
use crate::store::Task;

/// The default home folder.
const HOME: &str = "./millstream-home";

/// Names of the commands.
const COMMANDS: [&str; 10] =
    ["serve", "user", "check-config", "settings", "store", "import", "drain", "upgrade", "bench", "help"];
/// Minimum similarity of a known word to an unknown one for suggesting the known word.
const SIMILARITY_MIN: f64 = 0.8;

/// Template of the `--help` text, with placeholders for the lists of schemes and protocols.
const USAGE: &str = "\
millstream: a live-streaming media server

  millstream [serve] [--home DIR] [--set KEY=VALUE | --set KEY=@FILE]...
  millstream user add EMAIL [--home DIR]
  millstream check-config [--home DIR] [--set KEY=VALUE]... [--deep] [--quiet]
  millstream settings
  millstream store check|export|salvage [FILE] [--home DIR]
  millstream store backup [FILE] | restore FILE | reindex [--home DIR]
  millstream drain [off] [--home DIR]
  millstream upgrade [--home DIR]
  millstream import DIR [--records DIR] [--redis URL|FILE] [--copy] [--dry-run] [--home DIR]
  millstream bench publish|play --url URL [--count N] [--duration S] [--json] [...]
  millstream bench room --url URL [--count N] [--turn S] [--duration S] [--json] [...]
  millstream bench self [--count N] [--duration S] [--bitrate KBPS] [--json]

  serve          the default
  user add       adds an administrator of the management API; the password is read from the terminal or
                 from standard input. A running server adds the user itself, else it goes to the store
  check-config   validates the settings, reports all faults at once, and prints the settings in effect, with
                 secrets masked; --quiet prints the faults and remarks alone; --deep also opens and reads the store
  settings       prints all settings with their defaults and meanings, as in docs/settings.md
  store          tasks on the store of a home (docs/store.md): check reads all of it, export prints its records with
                 their secrets, backup copies it, also while the server runs, restore replaces it by a copy,
                 salvage recovers the readable records of a damaged store, reindex adds records of recordings
                 that have none; FILE is a copy to read instead of the store, or the target
  drain          lets the running server refuse new sessions, and end when its sessions have ended
                 (docs/operations.md); off: calls this off
  upgrade        lets the running server start the program now at its path, and hand over its ports and store;
                 sessions continue (docs/upgrade.md)
  import         makes a home of an installation of Ant Media Server in DIR (docs/import.md), which stays as it is;
                 --records names the folder of its exported or dumped records, --redis its redis://HOST:PORT
                 or RDB file; recordings are linked, with --copy copied; --dry-run prints what would be
                 different, and changes nothing
  bench          the load generator, against any server; the URL begins with
                 {schemes}.
                 [--streams M, with {n} in the URL] [--warm-up S] [--rate R] [--connect-timeout S]
                 [--threads T] [--protocol {protocols}] [--file F.flv] [--bitrate KBPS]
                 [--server-pid PID [--floor COST]] [--late MS] [--max-lost N] [--insecure];
                 room lets N participants publish into a room and play it, at the URL of its signalling socket;
                 self measures the floor of this machine; docs/bench.md

  --home DIR     folder of settings, applications, data and logs; serve creates it (./millstream-home)
  --set KEY=V    sets a key of the server, or with app.KEY=V one of all applications; @FILE reads the value
  --version, --help (or help, after bench too)

Exit codes: 0 drained, 1 failed at run time, 2 usage or configuration, 3 drain timed out.
Those of bench: 0 all connected and nothing was lost, 1 otherwise.
";

/// Returns the text of `--help`.
#[must_use]
pub fn usage() -> String {
    let protocols = load::protocol_list().join("|");
    USAGE.replace("{schemes}", &load::scheme_list()).replace("{protocols}", &protocols)
}

/// A command with its arguments.
#[derive(Debug)]
pub enum Command {
    /// Run the server.
    Serve {
        /// The options.
        options: Options,
        /// True to take over from the server that has started this process.
        takes_over: bool,
    },
    /// Let a new process of the program take over from the running server.
    Upgrade(Options),
    /// Check and show the settings.
    CheckConfig {
        /// The options.
        options: Options,
        /// True to check the store as well.
        deep: bool,
        /// True to print no settings.
        quiet: bool,
    },
    /// Print the reference of all settings.
    Settings,
    /// Add an administrator.
    AddUser {
        /// The options, which name the home folder.
        options: Options,
        /// The user's e-mail address.
        email: String,
    },
    /// Run a task on the store.
    Store {
        /// The options, which name the home folder.
        options: Options,
        /// Task to run.
        task: Task,
    },
    /// Import an installation of Ant Media Server.
    Import {
        /// Options of the import.
        options: Options,
        /// Paths and choices of the import.
        order: import::Order,
    },
    /// Decode key frames to preview pictures, as a child process of the server.
    PreviewWorker,
    /// Start or cancel the drain of the server that runs on a home folder.
    Drain {
        /// The options, which name the home folder.
        options: Options,
        /// True to begin the drain, false to cancel it.
        is_leaving: bool,
    },
    /// Generate load, or measure this machine.
    Bench(Box<bench::Task>),
    /// Print the usage.
    Help,
    /// Print the version.
    Version,
}

/// Parses the arguments.
///
/// # Errors
/// A message of one line.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: Vec<(String, String)>,
    cores: u16,
) -> Result<Command, String> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut options = Options {
        home: PathBuf::from(HOME),
        set: Vec::new(),
        environment,
        cores,
        schema: protocol::schema(),
    };
    let (mut command, mut deep, mut quiet, mut takes_over) = (None::<String>, false, false, false);
    let mut words: Vec<String> = Vec::new();
    let mut importing = ImportOptions::default();
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Long("home") => options.home = parser.value().map_err(|error| error.to_string())?.into(),
            Long("set") => {
                let value =
                    parser.value().and_then(|value| value.string()).map_err(|error| error.to_string())?;
                options.set.push(value);
            }
            Long("deep") => deep = true,
            Long("quiet") => quiet = true,
            // A running server starts the new program with this argument.
            Long("take-over") => takes_over = true,
            Long("dry-run") => importing.dry_run = true,
            Long("copy") => importing.copy = true,
            Long("records") => {
                importing.records = Some(parser.value().map_err(|error| error.to_string())?.into())
            }
            Long("redis") => importing.redis = Some(redis_of(&mut parser)?),
            Long("help") | Short('h') => return Ok(Command::Help),
            Long("version") | Short('V') => return Ok(Command::Version),
            Value(name) if command.is_none() && name == "bench" => {
                let task = bench::Task::parse(&mut parser)?;
                return Ok(task.map_or(Command::Help, |task| Command::Bench(task.into())));
            }
            Value(name) if command.is_none() && name == protocol::PREVIEW_WORKER => {
                return Ok(Command::PreviewWorker);
            }
            Value(name) if command.is_none() && name == "help" => return Ok(Command::Help),
            Value(name) if command.is_none() => {
                command = Some(name.string().map_err(|error| error.to_string())?)
            }
            Value(word) if command.as_deref() == Some("import") && importing.from.is_none() => {
                importing.from = Some(word.into());
            }
            Value(word)
                if matches!(command.as_deref(), Some("user" | "store" | "drain")) && words.len() < 2 =>
            {
                words.push(word.string().map_err(|error| error.to_string())?);
            }
            Value(_) | Long(_) | Short(_) => return Err(argument.unexpected().to_string()),
        }
    }
    if command.as_deref() != Some("import") && importing != ImportOptions::default() {
        return Err("--records, --redis, --copy and --dry-run belong to import".to_owned());
    }
    match command.as_deref() {
        None | Some("serve" | "user" | "store" | "settings" | "import" | "drain" | "upgrade")
            if deep || quiet =>
        {
            Err("--deep and --quiet belong to check-config".to_owned())
        }
        Some("import") => importing.order().map(|order| Command::Import { options, order }),
        None | Some("serve") => Ok(Command::Serve { options, takes_over }),
        Some("upgrade") => Ok(Command::Upgrade(options)),
        Some("user") => match words.as_slice() {
            [verb, email] if verb == "add" => Ok(Command::AddUser { options, email: email.clone() }),
            _ => Err("usage: millstream user add EMAIL".to_owned()),
        },
        Some("store") => Ok(Command::Store { options, task: store_task(&words)? }),
        Some("drain") => match words.as_slice() {
            [] => Ok(Command::Drain { options, is_leaving: true }),
            [word] if word == "off" => Ok(Command::Drain { options, is_leaving: false }),
            _ => Err("usage: millstream drain [off]".to_owned()),
        },
        Some("check-config") => Ok(Command::CheckConfig { options, deep, quiet }),
        Some("settings") => Ok(Command::Settings),
        Some(other) => Err(unknown(other)),
    }
}

/// Arguments of `import`.
#[derive(Debug, Default, PartialEq, Eq)]
struct ImportOptions {
    from: Option<PathBuf>,
    records: Option<PathBuf>,
    redis: Option<import::RedisSource>,
    copy: bool,
    dry_run: bool,
}

impl ImportOptions {
    fn order(self) -> Result<import::Order, String> {
        let Self { from, records, redis, copy, dry_run } = self;
        let from = from
            .ok_or("usage: millstream import DIR [--records DIR] [--redis URL|FILE] [--copy] [--dry-run]")?;
        Ok(import::Order { from, records, redis, copy, dry_run })
    }
}

fn redis_of(parser: &mut lexopt::Parser) -> Result<import::RedisSource, String> {
    let text = parser.value().and_then(|value| value.string()).map_err(|error| error.to_string())?;
    import::RedisSource::parse(&text).map_err(|error| format!("--redis: {error}"))
}

/// Parses the words after `store`.
fn store_task(words: &[String]) -> Result<Task, String> {
    let file = words.get(1).map(PathBuf::from);
    match (words.first().map(String::as_str), file) {
        (Some("check"), file) => Ok(Task::Check(file)),
        (Some("backup"), file) => Ok(Task::Backup(file)),
        (Some("restore"), Some(file)) => Ok(Task::Restore(file)),
        (Some("export"), file) => Ok(Task::Export(file)),
        (Some("salvage"), file) => Ok(Task::Salvage(file)),
        (Some("reindex"), None) => Ok(Task::Reindex),
        _ => {
            Err("usage: millstream store check|backup|export|salvage [FILE], restore FILE, or reindex"
                .to_owned())
        }
    }
}

/// Makes the error for an unknown command, with a suggestion.
fn unknown(command: &str) -> String {
    let meant = match command {
        "run" | "start" | "server" => Some("serve"),
        "check" | "config" | "check_config" => Some("check-config"),
        "adduser" | "useradd" | "add-user" | "users" => Some("user add EMAIL"),
        "migrate" | "migration" => Some("import DIR"),
        other => COMMANDS.into_iter().find(|known| strsim::jaro_winkler(known, other) >= SIMILARITY_MIN),
    };
    match meant {
        Some(meant) => format!("unknown command '{command}'; did you mean 'millstream {meant}'?"),
        None => format!("unknown command '{command}'; 'millstream help' lists them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from), Vec::new(), 2)
    }

    #[test]
    fn serve_is_the_default() {
        let Ok(Command::Serve { options, takes_over: false }) = parsed("") else { panic!() };
        assert_eq!((options.home, options.cores), (PathBuf::from(HOME), 2));
        let line = "serve --home h --set a=1 --set app.b=2 --take-over";
        let Ok(Command::Serve { options, takes_over: true }) = parsed(line) else { panic!() };
        assert_eq!(
            (options.home, options.set),
            (PathBuf::from("h"), vec!["a=1".to_owned(), "app.b=2".to_owned()])
        );
        let Ok(Command::AddUser { email, .. }) = parsed("user add a@b --home h") else { panic!() };
        assert_eq!(email, "a@b");
        let Ok(Command::Store { task, .. }) = parsed("store restore f --home h") else { panic!() };
        assert_eq!(task, Task::Restore("f".into()));
        assert!(matches!(parsed("upgrade --home h"), Ok(Command::Upgrade(_))));
        for (line, begins) in [("drain --home h", true), ("drain off", false)] {
            let Ok(Command::Drain { is_leaving, .. }) = parsed(line) else { panic!("{line}") };
            assert_eq!(is_leaving, begins);
        }
        assert!(matches!(parsed("store backup"), Ok(Command::Store { task: Task::Backup(None), .. })));
        assert!(matches!(parsed("check-config --deep"), Ok(Command::CheckConfig { deep: true, .. })));
        let line = "import /old --records r --redis redis://h --copy --dry-run --home h";
        let Ok(Command::Import { order, .. }) = parsed(line) else { panic!() };
        assert_eq!((order.from, order.records), ("/old".into(), Some("r".into())));
        assert!(order.copy && order.dry_run && order.redis.is_some());
    }

    #[test]
    fn help_is_found_where_it_is_looked_for_and_commands_are_guessed() {
        for line in ["help", "--help", "-h", "bench --help", "bench play -h", "bench self -h", "serve --help"]
        {
            assert!(matches!(parsed(line), Ok(Command::Help)), "{line}");
        }
        assert!(usage().contains("rtmps, rtsp, rtsps, srt,"), "{}", usage());
        for (given, meant) in
            [("serv", "serve"), ("run", "serve"), ("bnech", "bench"), ("chekc-config", "check-config")]
        {
            let error = parsed(given).unwrap_err();
            assert!(error.contains(&format!("did you mean 'millstream {meant}'?")), "{error}");
        }
        assert!(parsed("dance").unwrap_err().contains("millstream help"));
    }

    #[test]
    fn mistakes_are_one_line() {
        assert!(matches!(parsed("bench play --url rtmp://h/a/b"), Ok(Command::Bench(_))));
        for line in [
            "bench",
            "bench --help-me",
            "serve bench play --url rtmp://h/a/b",
            "--hom x",
            "serve serve",
            "dance",
            "--set",
            "--deep",
            "user",
            "user add",
            "store",
            "store restore",
            "store reindex f",
            "store dance",
            "store check --deep",
            "user remove a@b",
            "user add a@b c",
            "user add a@b --deep",
            "serve --home",
            "import",
            "import a b",
            "import a --deep",
            "import a --redis http://h",
            "serve --dry-run",
            "drain on",
            "drain off off",
            "upgrade now",
            "upgrade --deep",
            "drain --deep",
            "store check --copy",
        ] {
            let error = parsed(line).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{error}");
        }
    }
}
