//! The server's certificate: three files in the home folder. They are made at the first start and watched afterwards.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rcgen::{Certificate, CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::{Configs, Expiry};
use crate::disk::{self, Committed, SystemDisk, Together};
use crate::io::mailbox::{Mail, MailSender};

/// The interval at which the files are checked.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of certificates in a chain.
const CHAIN_MAX: usize = 16;

/// Paths of the certificate's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, or a whole chain that begins with the certificate (PEM).
    pub certificate: PathBuf,
    /// Intermediate certificates (PEM). The file may be missing.
    pub chain: PathBuf,
    /// The private key (PEM).
    pub key: PathBuf,
}

/// The reason why the certificate cannot be used. The reason never contains the text of the key.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file could not be read or written.
    #[error("{file}: {error}")]
    File {
        /// The file.
        file: String,
        /// The error of the operating system or of the PEM reader.
        error: String,
    },
    /// The chain is empty or too long.
    #[error("{0}: no certificate was found in it ('BEGIN CERTIFICATE', PEM), or more than 16")]
    Chain(String),
    /// Certificate and key do not match, or are of an unsupported kind.
    #[error("certificate and key do not go together: {0}")]
    Unusable(#[from] rustls::Error),
    /// The self-signed certificate could not be made.
    #[error("self-signed certificate: {0}")]
    Generate(#[from] rcgen::Error),
}

impl CertificateError {
    fn file(path: &Path, error: impl ToString) -> Self {
        Self::File { file: path.display().to_string(), error: error.to_string() }
    }

    /// Makes the error for a file that does not contain the wanted PEM section.
    fn pem(path: &Path, wanted: &str, error: &pem::Error) -> Self {
        Self::file(path, format!("{wanted} was looked for in it: {error}"))
    }
}

/// Identifies a version of the three files.
type Version = [Option<(i64, i64, u64, u64)>; 3];

impl CertificateFiles {
    /// Makes a self-signed certificate that exists only in memory. It allows clients that accept any certificate to use
    /// TLS until the files can be used.
    ///
    /// # Errors
    /// The library's error.
    pub(in crate::io) fn temporary(names: Vec<String>) -> Result<Configs, CertificateError> {
        let (certificate, key) = self_signed(names)?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|error| rustls::Error::General(error.to_owned()))?;
        let chain = vec![certificate.der().clone()];
        Configs::new(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?)
    }

    /// Makes a self-signed certificate for `names` if neither the certificate's file nor the key's file exists. Returns
    /// true if it was made.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn make_missing(&self, names: Vec<String>) -> Result<bool, CertificateError> {
        if self.certificate.exists() || self.key.exists() {
            return Ok(false);
        }
        let (certificate, key) = self_signed(names)?;
        make_folder_of(&self.key)?;
        make_folder_of(&self.certificate)?;
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        self.write(&[
            (&self.key, key.as_bytes(), 0o600),
            (&self.certificate, certificate.as_bytes(), 0o644),
        ])?;
        Ok(true)
    }

    /// Completes or undoes a replacement that was cut off by a crash. Afterwards, the files are either all old or all
    /// new.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(in crate::io) fn recover(&self) -> Result<(), CertificateError> {
        if self.together().recover().map_err(|error| CertificateError::file(&self.certificate, error))? {
            tracing::info!(
                certificate = %self.certificate.display(),
                "a replacement of the certificate was finished that a crash had cut off"
            );
        }
        Ok(())
    }

    /// Reads the files and makes the settings of TLS connections.
    ///
    /// # Errors
    /// The first fault found. The settings in use remain in use.
    pub(in crate::io) fn load(&self) -> Result<Configs, CertificateError> {
        let mut chain = read_certificates(&self.certificate)?;
        if self.chain.exists() {
            let more = read_certificates(&self.chain)?;
            chain.extend(
                more.into_iter().filter(|certificate| !chain.contains(certificate)).collect::<Vec<_>>(),
            );
        }
        if chain.is_empty() || chain.len() > CHAIN_MAX {
            return Err(CertificateError::Chain(self.certificate.display().to_string()));
        }
        let wanted =
            "a private key ('BEGIN PRIVATE KEY', 'BEGIN RSA PRIVATE KEY' or 'BEGIN EC PRIVATE KEY', PEM)";
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| CertificateError::pem(&self.key, wanted, &error))?;
        Configs::new(CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())?)
    }

    /// Replaces the files if the new ones match each other. The thread that watches the files then puts them into use.
    ///
    /// # Errors
    /// The fault of the files or of the disk. The certificate in use remains in use.
    pub(in crate::io) fn replace(
        &self,
        full_chain: &[u8],
        chain: &[u8],
        key: &[u8],
    ) -> Result<(), CertificateError> {
        self.write(&[
            (&self.key, key, 0o600),
            (&self.certificate, full_chain, 0o644),
            (&self.chain, chain, 0o644),
        ])
    }

    /// Writes these files together, if certificate, chain and key will match afterwards.
    fn write(&self, files: &[(&Path, &[u8], u32)]) -> Result<(), CertificateError> {
        let mut is_behind = behind();
        // Remove drafts that an earlier replacement has left, because they do not belong to this one.
        self.recover()?;
        *is_behind = false;
        let together = self.together();
        let staging = together.begin().map_err(|error| CertificateError::file(&self.certificate, error))?;
        let staged = files.iter().try_for_each(|(path, bytes, mode)| {
            staging.stage(path, bytes, *mode).map_err(|error| CertificateError::file(path, error))
        });
        let draft = |path: &PathBuf| {
            if files.iter().any(|(of, ..)| of == path) { Together::draft_of(path) } else { path.clone() }
        };
        let drafts =
            Self { certificate: draft(&self.certificate), chain: draft(&self.chain), key: draft(&self.key) };
        staged
            .and_then(|()| drafts.load().map(drop))
            .and_then(|()| {
                together.commit().map_err(|error| CertificateError::file(&self.certificate, error))
            })
            .inspect_err(|_| together.discard())
            .map(|committed| match committed {
                Committed::InPlace => {}
                Committed::Behind(error) => {
                    tracing::error!(%error, "certificate stored, but not in place yet; retrying");
                    *is_behind = true;
                }
            })
    }

    /// Puts stored files in place if the disk refused this when they were stored.
    fn finish(&self) {
        let mut is_behind = behind();
        if !*is_behind {
            return;
        }
        match self.together().finish() {
            Ok(_) => {
                tracing::info!("stored certificate in place");
                *is_behind = false;
            }
            Err(error) => tracing::debug!(%error, "stored certificate still not in place"),
        }
    }

    fn together(&self) -> Together<'_> {
        Together::new(&SystemDisk, vec![&self.certificate, &self.key, &self.chain])
    }

    fn version(&self) -> Version {
        [&self.certificate, &self.chain, &self.key].map(|path| {
            let data = fs::metadata(path).ok()?;
            Some((data.mtime(), data.mtime_nsec(), data.len(), data.ino()))
        })
    }
}

/// True while a stored replacement is not in place yet. The thread that changes the files holds the lock. The thread
/// that watches the files completes a replacement that a job could not complete.
fn behind() -> MutexGuard<'static, bool> {
    static BEHIND: Mutex<bool> = Mutex::new(false);
    BEHIND.lock().unwrap_or_else(PoisonError::into_inner)
}

fn self_signed(names: Vec<String>) -> Result<(Certificate, KeyPair), rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "millstream self-signed");
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2049, 12, 31);
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?, key))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| CertificateError::pem(path, "a certificate ('BEGIN CERTIFICATE', PEM)", &error))
}

/// Makes the folder of a file.
fn make_folder_of(path: &Path) -> Result<(), CertificateError> {
    disk::make_folder(&SystemDisk, path.parent().unwrap_or(path), 0o755)
        .map_err(|error| CertificateError::file(path, error))
}

/// Makes the thread that watches the files read them now.
#[derive(Debug, Clone)]
pub(in crate::io) struct Reload(Sender<()>);

impl Reload {
    pub(in crate::io) fn now(&self) {
        let _ = self.0.send(());
    }
}

/// Starts the thread that watches the files and replaces the certificate for new connections when they change. The
/// thread ends when the last [`Reload`] is dropped.
pub(in crate::io) fn start_watch(
    files: CertificateFiles,
    expiry: Expiry,
    shells: Vec<MailSender>,
) -> io::Result<Reload> {
    let (asks, asked) = channel();
    let run = move || watch(&files, &expiry, &shells, &asked);
    thread::Builder::new().name("certificates".into()).spawn(run)?;
    Ok(Reload(asks))
}

fn watch(files: &CertificateFiles, expiry: &Expiry, shells: &[MailSender], asked: &Receiver<()>) {
    let mut known = files.version();
    loop {
        let ask = asked.recv_timeout(WATCH_PERIOD);
        if ask == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        files.finish();
        let version = files.version();
        if ask.is_err() && version == known {
            continue;
        }
        // The key may be written shortly after the certificate. If they do not match yet, they are loaded again when
        // the files change again.
        known = version;
        match files.load() {
            Ok(configs) => {
                expiry.set(configs.expires_ms);
                tracing::info!("certificate loaded; new connections use it");
                for shell in shells {
                    shell.post(Mail::Tls(configs.clone()));
                }
            }
            Err(error) => tracing::warn!(%error, "certificate not loaded; the current one stays in effect"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::TempFolder;

    use super::*;

    /// Returns the paths of the files, in a folder that does not exist yet.
    fn files(folder: &TempFolder) -> CertificateFiles {
        let folder = folder.join("conf");
        CertificateFiles {
            certificate: folder.join("fullchain.pem"),
            chain: folder.join("chain.pem"),
            key: folder.join("privkey.pem"),
        }
    }

    #[test]
    fn the_first_start_makes_a_certificate_that_loads_and_the_second_keeps_it() {
        let folder = TempFolder::new();
        let files = files(&folder);
        assert!(files.make_missing(vec!["localhost".into(), "127.0.0.1".into()]).unwrap());
        assert_eq!(fs::metadata(&files.key).unwrap().mode() & 0o777, 0o600);
        files.load().unwrap();
        let version = files.version();
        assert!(!files.make_missing(vec!["localhost".into()]).unwrap());
        assert_eq!(files.version(), version);
    }

    #[test]
    fn a_key_whose_certificate_could_not_be_written_is_in_nobodys_way() {
        let home = TempFolder::new();
        let mut files = files(&home);
        let folder = files.key.parent().unwrap().to_owned();
        fs::create_dir_all(&folder).unwrap();
        // A folder cannot be created where a file exists.
        let blocked = folder.join("blocked");
        fs::write(&blocked, "").unwrap();
        files.certificate = blocked.join("fullchain.pem");
        assert!(files.make_missing(vec!["localhost".into()]).is_err());
        assert!(!files.key.exists());
        fs::remove_file(&blocked).unwrap();
        assert!(files.make_missing(vec!["localhost".into()]).unwrap());
        files.load().unwrap();
    }

    #[test]
    fn b_18_a_replacement_makes_no_folder_that_is_gone() {
        let home = TempFolder::new();
        let files = files(&home);
        files.make_missing(vec!["a".into()]).unwrap();
        let [certificate, key] = [&files.certificate, &files.key].map(|file| fs::read(file).unwrap());
        files.replace(&certificate, &certificate, &key).unwrap();
        fs::remove_dir_all(home.join("conf")).unwrap();
        assert!(files.replace(&certificate, &certificate, &key).is_err() && !home.join("conf").exists());
    }

    /// Returns a certificate and its key in the form in which they are uploaded.
    fn pair(name: &str) -> (Vec<u8>, Vec<u8>) {
        let (certificate, key) = self_signed(vec![name.to_owned()]).unwrap();
        (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
    }

    #[test]
    fn b_19_a_replacement_that_is_cut_off_anywhere_leaves_a_certificate_with_its_key() {
        let home = TempFolder::new();
        // The same file name with two extensions, as some operators use it.
        let folder = home.join("conf");
        let files = CertificateFiles {
            certificate: folder.join("server.pem"),
            chain: folder.join("chain.pem"),
            key: folder.join("server.key"),
        };
        files.make_missing(vec!["a".into()]).unwrap();
        let all = [&files.certificate, &files.key, &files.chain];
        let former = [files.certificate.clone(), files.key.clone()].map(|file| fs::read(file).unwrap());
        let (certificate, key) = pair("b");
        let cut = |marked: bool, moved: usize| {
            for (path, bytes) in [&files.certificate, &files.key].into_iter().zip(&former) {
                fs::write(path, bytes).unwrap();
            }
            fs::write(&files.chain, "").unwrap();
            for (path, bytes) in all.into_iter().zip([&certificate, &key, &certificate]) {
                fs::write(Together::draft_of(path), bytes).unwrap();
            }
            if marked {
                fs::write(files.certificate.with_added_extension("commit"), "").unwrap();
            }
            for path in all.into_iter().take(moved) {
                fs::rename(Together::draft_of(path), path).unwrap();
            }
            assert_eq!(files.load().is_err(), moved == 1, "half of it is no pair");
            files.recover().unwrap();
            files.load().unwrap();
            let is_new = fs::read(&files.certificate).unwrap() == certificate;
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
            (is_new, fs::read(&files.key).unwrap() == key)
        };
        assert_eq!(cut(false, 0), (false, false));
        for moved in 0..=3 {
            assert_eq!(cut(true, moved), (true, true), "{moved}");
        }
        files.replace(&former[0], &former[0], &former[1]).unwrap();
        assert_eq!(fs::read(&files.key).unwrap(), former[1]);
        // A certificate that does not match the key is refused, and no draft is left.
        assert!(files.replace(&certificate, &certificate, &former[1]).is_err());
        assert_eq!((fs::read_dir(&folder).unwrap().count(), files.load().is_ok()), (3, true));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_named_without_the_key() {
        let (one, another) = (TempFolder::new(), TempFolder::new());
        let (files, other) = (files(&one), files(&another));
        files.make_missing(vec!["a".into()]).unwrap();
        other.make_missing(vec!["b".into()]).unwrap();
        let mixed = CertificateFiles { key: other.key.clone(), ..files.clone() };
        assert!(matches!(mixed.load(), Err(CertificateError::Unusable(_))));
        fs::write(&files.key, "-----BEGIN PRIVATE KEY-----\nsecret\n").unwrap();
        let error = files.load().unwrap_err().to_string();
        assert!(error.contains("privkey.pem") && !error.contains("secret"), "{error}");
        fs::remove_file(&files.certificate).unwrap();
        assert!(files.load().unwrap_err().to_string().contains("fullchain.pem"));
    }

    /// Runs `packaging/certificates/deploy.sh`, and kills it when it begins command number `cut`.
    /// Returns false if the script completed before that.
    fn deploy(home: &Path, bin: &Path, pair: [&Path; 2], cut: usize) -> bool {
        let count = bin.join("count");
        fs::write(&count, "0\n").unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/certificates/deploy.sh");
        // The script's process has the id of this shell.
        let mut command = std::process::Command::new("sh");
        command.args(["-c", r#"SCRIPT=$$ exec sh "$@""#, "sh"]).arg(script).args(pair);
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let path = [("PATH", path), ("CUT", cut.to_string())];
        let status = command.envs(path).env("COUNT", &count).env("SERVER_HOME", home).output().unwrap();
        !status.status.success()
    }

    #[test]
    fn b_19_a_deployment_that_is_cut_off_anywhere_leaves_the_old_certificate_or_the_new_one() {
        use std::os::unix::fs::PermissionsExt;
        let home = TempFolder::new();
        let files = files(&home);
        files.make_missing(vec!["a".into()]).unwrap();
        let bin = home.join("bin");
        fs::create_dir(&bin).unwrap();
        for name in ["mktemp", "cat", "id", "chown", "chmod", "mv", "sync", "rm"] {
            // Syncs do nothing: no power cut is simulated here, so only the names of the files are checked.
            let run = if name == "sync" { "exit 0".to_owned() } else { format!("exec /bin/{name} \"$@\"") };
            let text = format!(
                "#!/bin/sh\nread n < \"$COUNT\"\necho $((n + 1)) > \"$COUNT\"\n\
                 if [ \"$n\" -ge \"$CUT\" ]; then kill -9 \"$SCRIPT\"; exit 1; fi\n{run}\n"
            );
            fs::write(bin.join(name), text).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let given = [home.join("new.pem"), home.join("new.key")];
        let (mut cuts, mut olds, mut news) = (0, 0, 0);
        loop {
            let old = [&files.certificate, &files.key].map(|file| fs::read(file).unwrap());
            let (certificate, key) = pair(&format!("b{cuts}"));
            fs::write(&given[0], &certificate).unwrap();
            fs::write(&given[1], &key).unwrap();
            let was_cut = deploy(&home, &bin, [&given[0], &given[1]], cuts);
            // The next start recovers before it reads the files.
            files.recover().unwrap();
            files.load().unwrap();
            let found = [&files.certificate, &files.key].map(|file| fs::read(file).unwrap());
            let is_new = found == [certificate, key];
            assert!(is_new || found == old, "cut at command {cuts}");
            if !was_cut {
                assert!(is_new && cuts > 20 && olds > 5 && news > 2, "{cuts} {olds} {news}");
                break;
            }
            *(if is_new { &mut news } else { &mut olds }) += 1;
            cuts += 1;
        }
        let left = fs::read_dir(home.join("conf")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("draft")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
