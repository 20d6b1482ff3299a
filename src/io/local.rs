//! `data/control.sock`, the socket over which the command line talks to a running server. Each side sends one
//! line of JSON. Only the operator can open the socket (mode 0600, in a folder of mode 0700).

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::control_thread::{ControlMail, ControlSender};
use super::directory::Records;
use super::upgrade::Upgrader;
use super::{jobs, log};
use crate::config::{Config, Options};
use crate::control::{self, ADDS_USER, AUDIT, administrator_record, is_email};
use crate::jobs::PASSWORD_CHARS_MIN;
use crate::store::{self, Op, RedbStore, backup};

/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: u64 = 8 << 10;
/// Time limit for a peer of the socket.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for an upgrade.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(240);
/// Time limit for a backup.
const BACKUP_PATIENCE: Duration = Duration::from_secs(600);

/// An order of the command line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
enum Order {
    /// Add an administrator with this password hash.
    AddUser { email: String, hash: String },
    /// Back up the store.
    BackUp,
    /// Begin to drain, or stop draining.
    Drain { is_leaving: bool },
    /// Let a new process of the program take over.
    Upgrade,
}

fn socket_file(home: &Path) -> PathBuf {
    home.join("data").join("control.sock")
}

/// The socket before it is served; in an upgrade, it does not have its name yet.
#[derive(Debug)]
pub(super) struct Unnamed {
    listener: UnixListener,
    beside: PathBuf,
    path: PathBuf,
}

/// Makes the socket: at its place or, in an upgrade, beside it, because the older process still has the place. A socket
/// file that already exists is replaced. No other server uses it, because this server holds the lock of the store.
pub(super) fn bind(home: &Path, is_upgrade: bool) -> io::Result<Unnamed> {
    let path = socket_file(home);
    // The temporary name is not longer than the final one, because the path of a socket may have at most 107 bytes.
    let beside = if is_upgrade { path.with_extension("new") } else { path.clone() };
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&beside)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o600))?;
    Ok(Unnamed { listener, beside, path })
}

/// Gives the socket its name, and starts its thread, which ends with the process.
pub(super) fn start(unnamed: Unnamed, control_sender: ControlSender, upgrader: Upgrader) -> io::Result<()> {
    let Unnamed { listener, beside, path } = unnamed;
    fs::rename(beside, path)?;
    let serve_all = move || {
        for stream in listener.incoming() {
            let served = stream.and_then(|stream| serve(&stream, &control_sender, &upgrader));
            if let Err(error) = served {
                tracing::debug!(%error, "control socket");
            }
        }
    };
    thread::Builder::new().name("local".into()).spawn(serve_all).map(drop)
}

fn serve(mut stream: &UnixStream, control_sender: &ControlSender, upgrader: &Upgrader) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(Order::AddUser { email, hash }) => {
            let (reply, answered) = channel();
            control_sender.send(ControlMail::AddUser { email, hash, reply });
            answered.recv_timeout(PATIENCE).map_err(|_| io::ErrorKind::TimedOut)?
        }
        Ok(Order::BackUp) => {
            let (reply, answered) = channel();
            control_sender.send(ControlMail::Order { order: control::Order::BackUp, reply });
            answered.recv_timeout(BACKUP_PATIENCE).map_err(|_| io::ErrorKind::TimedOut)?
        }
        Ok(Order::Drain { is_leaving }) => {
            let (reply, answered) = channel();
            control_sender.send(ControlMail::Order { order: control::Order::Drain { is_leaving }, reply });
            answered.recv_timeout(PATIENCE).map_err(|_| io::ErrorKind::TimedOut)?
        }
        Ok(Order::Upgrade) => {
            let result =
                upgrader.begin().recv_timeout(UPGRADE_PATIENCE).map_err(|_| io::ErrorKind::TimedOut)?;
            let (is_done, message) = result.map_or_else(|why| (false, why), |pid| (true, pid.to_string()));
            serde_json::json!({ "success": is_done, "message": message }).to_string()
        }
        Err(_) => r#"{"success":false,"message":"the order is not understood"}"#.to_owned(),
    };
    stream.write_all(answer.as_bytes())?;
    stream.write_all(b"\n")
}

/// The reason a user was not added.
#[derive(Debug, thiserror::Error)]
pub enum AddUserError {
    /// The e-mail, the password or the settings are invalid.
    #[error("{0}")]
    Usage(String),
    /// Any other failure.
    #[error("{0}")]
    Failed(String),
}

/// Adds an administrator through the running server, or directly to the store if no server runs.
///
/// # Errors
/// The reason why the user was not added. Nothing was changed then.
pub fn add_user(options: &Options, email: &str, plain: &str) -> Result<(), AddUserError> {
    let failed = |error: &dyn ToString| AddUserError::Failed(error.to_string());
    let has_both_sides =
        email.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    if !is_email(email) || !has_both_sides {
        return Err(AddUserError::Usage(format!("'{}' is no e-mail address", email.escape_debug())));
    }
    if plain.chars().count() < PASSWORD_CHARS_MIN {
        let short = format!("the password has fewer than {PASSWORD_CHARS_MIN} characters");
        return Err(AddUserError::Usage(short));
    }
    if !options.is_home() {
        let home = std::path::absolute(&options.home).unwrap_or_else(|_| options.home.clone());
        let home = home.display();
        return Err(AddUserError::Usage(format!(
            "{home} is no home of a server: name it by --home DIR, or start the server there first"
        )));
    }
    let config = Config::open(options).map_err(|error| AddUserError::Usage(error.to_string()))?;
    let mut salt = [0; 16];
    fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut salt)).map_err(|e| failed(&e))?;
    let digest = jobs::digest_of(plain).ok_or_else(|| failed(&"the password cannot be hashed"))?;
    let hash = jobs::make(&digest, salt);
    match UnixStream::connect(socket_file(&config.home)) {
        Ok(stream) => ask(&stream, email, hash),
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => {
            let stored = store_user(&config, email, hash);
            audit_user(&config, email, stored.as_ref().err());
            stored.map_err(|error| failed(&error))
        }
        Err(error) => Err(failed(&error)),
    }
}

fn ask(stream: &UnixStream, email: &str, hash: String) -> Result<(), AddUserError> {
    let order = Order::AddUser { email: email.to_owned(), hash };
    order_of_a_server(stream, &order, PATIENCE).map(drop).map_err(AddUserError::Failed)
}

/// Sends an order to the running server. Returns its answer, or the reason why it refused the order.
fn order_of_a_server(mut stream: &UnixStream, order: &Order, patience: Duration) -> Result<Value, String> {
    let failed = |error: io::Error| format!("the server does not answer: {error}");
    let line = serde_json::to_string(order).unwrap_or_default() + "\n";
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    stream.write_all(line.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut answer).map_err(failed)?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    if answer.get("success") == Some(&Value::Bool(true)) {
        return Ok(answer);
    }
    Err(answer.get("message").and_then(Value::as_str).unwrap_or("the server refused").to_owned())
}

/// Orders the running server of a home to drain, or to stop draining.
///
/// # Errors
/// No server is running, or it refuses.
pub fn order_drain(options: &Options, is_leaving: bool) -> Result<(), String> {
    let home = std::path::absolute(&options.home).unwrap_or_else(|_| options.home.clone());
    let stream = UnixStream::connect(socket_file(&home))
        .map_err(|error| format!("no server runs in {}: {error}", home.display()))?;
    order_of_a_server(&stream, &Order::Drain { is_leaving }, PATIENCE).map(drop)
}

/// Lets a new process of the program take over from the running server of a home. Returns its id.
///
/// # Errors
/// No server is running, or the running server does not let another process take over; the text names the
/// reason.
pub fn order_upgrade(options: &Options) -> Result<String, String> {
    let home = std::path::absolute(&options.home).unwrap_or_else(|_| options.home.clone());
    let stream = UnixStream::connect(socket_file(&home))
        .map_err(|error| format!("no server runs in {}: {error}", home.display()))?;
    let answer = order_of_a_server(&stream, &Order::Upgrade, UPGRADE_PATIENCE)?;
    Ok(answer.get("message").and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// Orders the running server to back up its store. Returns the name of the copy, or `None` if no server is
/// running.
pub(super) fn back_up(home: &Path) -> Option<Result<String, String>> {
    match UnixStream::connect(socket_file(home)) {
        Ok(stream) => Some(
            order_of_a_server(&stream, &Order::BackUp, BACKUP_PATIENCE)
                .map(|answer| answer.get("dataId").and_then(Value::as_str).unwrap_or_default().to_owned()),
        ),
        Err(_) => None,
    }
}

/// Opens the store of a home. A home that has been used before must have a store.
pub(super) fn open_store(config: &Config) -> Result<RedbStore, store::Error> {
    open_store_at(&config.store_file(), config.used)
}

/// Opens a store. Creates it unless the home has `used` one before.
pub(super) fn open_store_at(file: &Path, used: bool) -> Result<RedbStore, store::Error> {
    if used { RedbStore::open_existing(file) } else { RedbStore::open(file) }
}

/// Writes the line to the audit log that a running server would write.
fn audit_user(config: &Config, email: &str, error: Option<&String>) {
    let settings = config.server.log;
    if !settings.audit {
        return;
    }
    let (who, from, object) = ("command line", "-", format!("users {email}"));
    log::audit_alone(&config.home.join("log"), settings, || match error {
        Some(error) => tracing::warn!(target: AUDIT, who, from, object, error, "failed: {ADDS_USER}"),
        None => tracing::info!(target: AUDIT, who, from, object, "{ADDS_USER}"),
    });
}

fn store_user(config: &Config, email: &str, hash: String) -> Result<(), String> {
    let mut records =
        Records::visit(config).map_err(|error| backup::with_advice(&error, &config.store_file()))?;
    let store = records.store();
    let (key, record) = administrator_record(email, hash);
    let all = store.load().map_err(|error| error.to_string())?;
    if all.iter().any(|(known, _)| *known == key) {
        return Err("a user with this e-mail exists".to_owned());
    }
    store.commit(&[Op::Put(key, record)]).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::TempFolder;

    /// The longest path that a socket may have.
    const PATH_BYTES_MAX: usize = 107;

    #[test]
    fn a_home_whose_socket_just_fits_has_one() {
        let folder = TempFolder::new();
        let rest = PATH_BYTES_MAX - socket_file(&folder.join("h")).as_os_str().len() + 1;
        let home = folder.join("h".repeat(rest));
        fs::create_dir_all(home.join("data")).unwrap();
        assert_eq!(socket_file(&home).as_os_str().len(), PATH_BYTES_MAX);
        for is_upgrade in [false, true] {
            bind(&home, is_upgrade).unwrap();
        }
    }
}
