//! Arguments, logging and signals; everything else is in the library.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use millstream::bench;
use millstream::cli::{self, Command};
use millstream::config::{Config, Options};
use millstream::import;
use millstream::io::{
    self, AddUserError, Notice, Server, ServiceManager, StopReason, Successor, import_tool, load, log,
    store_tools,
};
use millstream::protocol::{self, Addresses};
use millstream::store::{self, RedbStore, Store, backup};
use millstream::types::build;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit codes of the command line.
const RUN_TIME: u8 = 1;
const USAGE: u8 = 2;
const DRAIN_TIMED_OUT: u8 = 3;
/// Longest password, in bytes.
const PASSWORD_BYTES_MAX: u64 = 4096;
/// Time limit of a drain.
const DRAIN_MAX: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    // If a session panics, or the store panics on a damaged file, the panic is caught there. Report it as a log
    // line, not as text on the terminal.
    std::panic::set_hook(Box::new(|panic| tracing::error!("{}", panic.to_string().replace('\n', ": "))));
    let cores = std::thread::available_parallelism()
        .map_or(1, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX));
    let environment =
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    match cli::parse(std::env::args_os().skip(1), environment.collect(), cores) {
        Ok(Command::Serve { options, takes_over }) => serve(&options, takes_over),
        Ok(Command::Upgrade(options)) => upgrade(&options),
        Ok(Command::CheckConfig { options, deep, quiet }) => check_config(&options, deep, quiet),
        Ok(Command::Settings) => print(&protocol::schema().page()),
        Ok(Command::AddUser { options, email }) => add_user(&options, &email),
        Ok(Command::Store { options, task }) => run_store(&options, &task),
        Ok(Command::Drain { options, is_leaving }) => drain(&options, is_leaving),
        Ok(Command::Import { options, order }) => run_import(&options, &order),
        Ok(Command::PreviewWorker) => ExitCode::from(io::preview_worker::run()),
        Ok(Command::Bench(task)) => run_bench(*task),
        Ok(Command::Help) => print(&cli::usage()),
        Ok(Command::Version) => print(&format!("millstream {}\n", build::FULL)),
        Err(error) => fail(USAGE, &error),
    }
}

fn serve(options: &Options, takes_over: bool) -> ExitCode {
    let successor = match takes_over.then(Successor::of_standard_input).transpose() {
        Ok(successor) => successor,
        Err(error) => return fail(USAGE, &format!("only a running server can start this: {error}")),
    };
    let config = match Config::open(options) {
        Ok(config) => config,
        Err(error) => return fail(USAGE, &error.to_string()),
    };
    let guards = log::start(&config.home.join("log"), config.server.log);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    for app in &config.lost {
        tracing::error!(
            app = &*app.name,
            reason = app.reason,
            "application not started: its settings are invalid"
        );
    }
    let (notices, heard) = channel();
    // Handle signals before the ready line is printed, so that a signal sent right after that line does not meet
    // the default handler.
    if let Err(error) = watch_signals(notices.clone()) {
        return fail(RUN_TIME, &format!("signals: {error}"));
    }
    let server = match Server::start(&config, options, &notices, successor) {
        Ok(server) => server,
        Err(error) => return fail(RUN_TIME, &error.with_advice(&config)),
    };
    print(&ready_line(server.addresses()));
    let listening = listeners(server.addresses());
    tracing::info!("millstream {}, listening: {listening}", build::FULL);
    if let Some(lack) = protocol::audio_lack() {
        tracing::warn!("{lack}");
    }
    let manager = ServiceManager::of_environment();
    if let Some(manager) = &manager {
        if let Err(error) = server.start_watchdog(Arc::clone(manager)) {
            return fail(RUN_TIME, &format!("the watchdog: {error}"));
        }
        manager.ready(&format!("listening: {listening}"));
    }
    let code = watch(server, &heard, manager.as_deref());
    drop(guards);
    code
}

/// Converts signals to notices.
fn watch_signals(notices: Sender<Notice>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])?;
    // Ignore an alarm that was set before the program was started.
    signal_hook::flag::register(SIGALRM, Arc::default())?;
    // A write beyond the file size limit (RLIMIT_FSIZE) now fails as on a full disk. Without this, the signal
    // would kill the server.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let forward = move || {
        for signal in signals.forever() {
            if notices.send(Notice::Signal(signal)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(forward).map(drop)
}

/// Waits for a signal, then for the end of all threads.
fn watch(server: Server, heard: &Receiver<Notice>, manager: Option<&ServiceManager>) -> ExitCode {
    let mut drained_by = None::<Instant>;
    let mut living = server.threads();
    while living > 0 {
        let notice = match drained_by {
            None => heard.recv().ok(),
            Some(by) => heard.recv_timeout(by.saturating_duration_since(Instant::now())).ok(),
        };
        match notice {
            Some(Notice::Signal(SIGHUP)) => {
                log::reopen();
                server.reload();
            }
            Some(Notice::Signal(SIGUSR1)) => log::reopen(),
            Some(Notice::Signal(SIGUSR2)) => server.upgrade(),
            Some(Notice::Signal(SIGQUIT)) => server.leave(),
            Some(notice @ (Notice::Signal(_) | Notice::Left)) if drained_by.is_none() => {
                if let Notice::Signal(signal) = notice {
                    tracing::info!(signal, "draining");
                }
                // After an upgrade the manager supervises the other process.
                if let Some(manager) = manager.filter(|_| !server.is_upgraded()) {
                    manager.draining();
                }
                server.drain();
                drained_by = Some(Instant::now() + DRAIN_MAX);
            }
            Some(Notice::Signal(_) | Notice::Left) => {}
            Some(Notice::ThreadEnded) if drained_by.is_some() => living -= 1,
            Some(Notice::ThreadEnded) => {
                tracing::error!("server thread died");
                return ExitCode::from(RUN_TIME);
            }
            None => {
                tracing::error!("drain timed out");
                return ExitCode::from(DRAIN_TIMED_OUT);
            }
        }
    }
    match server.join() {
        StopReason::Drained => {
            tracing::info!("drained");
            ExitCode::SUCCESS
        }
        StopReason::Died => ExitCode::from(RUN_TIME),
    }
}

/// Adds a user. The password is requested twice on a terminal; otherwise the first line of the input is used.
fn add_user(options: &Options, email: &str) -> ExitCode {
    let password = match read_password() {
        Ok(password) => password,
        Err(error) => return fail(USAGE, &format!("the password: {error}")),
    };
    match io::add_user(options, email, &password) {
        Ok(()) => {
            let home = std::path::absolute(&options.home).unwrap_or_else(|_| options.home.clone());
            complain(&format!("{email} is added to {}", home.display()));
            ExitCode::SUCCESS
        }
        Err(AddUserError::Usage(error)) => fail(USAGE, &error),
        Err(AddUserError::Failed(error)) => fail(RUN_TIME, &error),
    }
}

fn read_password() -> std::io::Result<String> {
    if !std::io::stdin().is_terminal() {
        let mut line = String::new();
        std::io::stdin().lock().take(PASSWORD_BYTES_MAX).read_line(&mut line)?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let password = rpassword::prompt_password("Password: ")?;
    if rpassword::prompt_password("Again: ")? != password {
        return Err(std::io::Error::other("the two differ"));
    }
    Ok(password)
}

fn check_config(options: &Options, deep: bool, quiet: bool) -> ExitCode {
    let faults = Config::faults(options);
    let config = match (Config::inspect(options), faults.is_empty()) {
        (Ok(config), true) => config,
        (Err(error), true) => return fail(USAGE, &error.to_string()),
        (_, false) => {
            faults.iter().for_each(|fault| complain(fault));
            return ExitCode::from(USAGE);
        }
    };
    for warning in &config.warnings {
        complain(warning);
    }
    let path = config.store_file();
    if deep && (config.used || path.exists()) {
        match RedbStore::open_existing(&path).and_then(|mut store| store.load()) {
            Ok(records) => complain(&format!("the store has {} records", records.len())),
            Err(error) => return fail(RUN_TIME, &backup::with_advice(&error, &path)),
        }
    }
    if quiet { ExitCode::SUCCESS } else { print(&config.describe()) }
}

/// Runs a task on the store. Records go to standard output, other messages to standard error.
fn run_store(options: &Options, task: &store::Task) -> ExitCode {
    match store_tools::run(options, task, &mut std::io::stdout().lock()) {
        Ok(done) => {
            complain(&done);
            ExitCode::SUCCESS
        }
        Err(error) => fail(RUN_TIME, &error),
    }
}

/// Has the running server start the program that is now at its path.
fn upgrade(options: &Options) -> ExitCode {
    match io::order_upgrade(options) {
        Ok(pid) => {
            complain(&format!("process {pid} has taken over"));
            ExitCode::SUCCESS
        }
        Err(error) => fail(RUN_TIME, &error),
    }
}

/// Makes the running server drain, or cancels the drain.
fn drain(options: &Options, is_leaving: bool) -> ExitCode {
    match io::order_drain(options, is_leaving) {
        Ok(()) => {
            complain(if is_leaving { "the server is draining" } else { "the drain is called off" });
            ExitCode::SUCCESS
        }
        Err(error) => fail(RUN_TIME, &error),
    }
}

/// Runs an import. The table goes to standard output, the summary to standard error.
fn run_import(options: &Options, order: &import::Order) -> ExitCode {
    match import_tool::run(options, order, &mut std::io::stdout().lock()) {
        Ok(done) => {
            complain(&done);
            ExitCode::SUCCESS
        }
        Err(error) => fail(RUN_TIME, &error),
    }
}

/// Runs a benchmark. The report goes to standard output; a signal ends the measured time early.
fn run_bench(task: bench::Task) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            return fail(RUN_TIME, &format!("signals: {error}"));
        }
    }
    let (text, is_ok) = match task {
        bench::Task::Load(options) => match load::run(&options, &stop) {
            Ok(report) => (as_asked(options.json, &report.json(), report.text()), report.is_ok()),
            Err(error) => return fail(RUN_TIME, &error),
        },
        bench::Task::Floor(options) => match load::measure_floor(options, &stop) {
            Ok(report) => (as_asked(report.options.json, &report.json(), report.text()), true),
            Err(error) => return fail(RUN_TIME, &error),
        },
    };
    let printed = print(&text);
    if is_ok { printed } else { ExitCode::from(RUN_TIME) }
}

fn as_asked(json: bool, object: &serde_json::Value, text: String) -> String {
    if json { format!("{object:#}\n") } else { text }
}

/// Lists the listeners with their addresses, for people.
fn listeners(addresses: &Addresses) -> String {
    let open = protocol::listener_names()
        .flat_map(|name| addresses.all(name).map(move |address| format!("{name} {address}")));
    open.collect::<Vec<_>>().join(", ")
}

/// Makes the only line on standard output. Listeners that are off or not built in are `null`.
fn ready_line(addresses: &Addresses) -> String {
    let mut line = serde_json::Map::new();
    line.insert("event".to_owned(), "ready".into());
    line.insert("pid".to_owned(), std::process::id().into());
    for (name, value) in [("version", build::VERSION), ("commit", build::COMMIT), ("date", build::DATE)] {
        line.insert(name.to_owned(), value.into());
    }
    let addresses = protocol::listener_names().map(|name| {
        let mut of_name = addresses.all(name).map(|address| address.to_string()).peekable();
        // If each worker has its own port, the line lists all ports in the order of the workers.
        let is_list = of_name.peek().is_some() && protocol::Port::is_listed(name);
        let value = if is_list { of_name.collect() } else { of_name.next().into() };
        (name.to_owned(), value)
    });
    line.extend(addresses);
    format!("{}\n", serde_json::Value::Object(line))
}

fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(RUN_TIME),
    }
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "millstream: {text}");
}

fn fail(code: u8, text: &str) -> ExitCode {
    complain(text);
    ExitCode::from(code)
}
