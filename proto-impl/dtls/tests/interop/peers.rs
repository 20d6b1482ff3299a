//! Other side of the interoperability tests: certificates made by the `openssl` command, and child processes whose
//! output is read as it comes.

use std::io::Read;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Maximum wait, longer than even a busy machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Certificate {
    P256,
    Rsa,
}

pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) der: Vec<u8>,
    pub(crate) pkcs8: Vec<u8>,
}

static FILES: LazyLock<[Files; 2]> = LazyLock::new(|| {
    [
        make("p256", &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]),
        make("rsa", &["-newkey", "rsa:2048"]),
    ]
});

pub(crate) fn certificate(kind: Certificate) -> &'static Files {
    let [p256, rsa] = &*FILES;
    match kind {
        Certificate::P256 => p256,
        Certificate::Rsa => rsa,
    }
}

fn make(name: &str, algorithm: &[&str]) -> Files {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("dtls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    let run = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let (c, k) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let base = ["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=webrtc", "-keyout", k, "-out", c];
    run(&[&base[..], algorithm].concat());
    let der = run(&["x509", "-in", c, "-outform", "DER"]);
    let pkcs8 = run(&["pkcs8", "-topk8", "-nocrypt", "-in", k, "-outform", "DER"]);
    Files { certificate, key, der, pkcs8 }
}

/// Child process with its output so far.
pub(crate) struct Peer {
    child: Child,
    printed: Arc<Mutex<String>>,
    pub(crate) port: u16,
    pub(crate) certificate: Certificate,
}

impl Peer {
    fn start(mut command: Command, port: u16, certificate: Certificate) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let printed = Arc::new(Mutex::new(String::new()));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        collect(out, Arc::clone(&printed));
        collect(err, Arc::clone(&printed));
        Self { child, printed, port, certificate }
    }

    fn openssl(mode: &str, own: Certificate, srtp: &str, mtu: usize, options: &[&str]) -> Command {
        let files = certificate(own);
        let mut command = Command::new("openssl");
        command.args([mode, "-dtls1_2", "-mtu", &mtu.to_string(), "-use_srtp", srtp]);
        command.args(["-keymatexport", "EXTRACTOR-dtls_srtp", "-keymatexportlen", "60"]);
        command.arg("-cert").arg(&files.certificate).arg("-key").arg(&files.key).args(options);
        command
    }

    pub(crate) fn openssl_server(own: Certificate, srtp: &str, mtu: usize, options: &[&str]) -> Self {
        let port = free_port();
        let mut command = Self::openssl("s_server", own, srtp, mtu, options);
        command.args(["-accept", &format!("127.0.0.1:{port}"), "-verify", "1", "-naccept", "1"]);
        let peer = Self::start(command, port, own);
        peer.wait_for("ACCEPT");
        peer
    }

    pub(crate) fn openssl_client(
        own: Certificate,
        srtp: &str,
        mtu: usize,
        port: u16,
        options: &[&str],
    ) -> Self {
        let mut command = Self::openssl("s_client", own, srtp, mtu, options);
        command.args(["-connect", &format!("127.0.0.1:{port}")]);
        Self::start(command, port, own)
    }

    fn gnutls(program: &str, own: Certificate, srtp: &str, mtu: usize, port: u16) -> Command {
        let files = certificate(own);
        // Line-buffers the program's output, which would otherwise only appear when the program ends.
        let mut command = Command::new("stdbuf");
        command.args([
            "-oL",
            program,
            "--udp",
            &format!("--mtu={mtu}"),
            "-p",
            &port.to_string(),
            "--srtp-profiles",
            srtp,
        ]);
        command.args(["--priority", "NORMAL:-VERS-ALL:+VERS-DTLS1.2"]);
        command.args(["--keymatexport=EXTRACTOR-dtls_srtp", "--keymatexportsize=60"]);
        command.arg("--x509certfile").arg(&files.certificate).arg("--x509keyfile").arg(&files.key);
        command
    }

    pub(crate) fn gnutls_server(own: Certificate, srtp: &str, mtu: usize) -> Self {
        let port = free_port();
        let command = Self::gnutls("gnutls-serv", own, srtp, mtu, port);
        let peer = Self::start(command, port, own);
        peer.wait_for("listening on IPv4");
        peer
    }

    pub(crate) fn gnutls_client(own: Certificate, srtp: &str, mtu: usize, port: u16) -> Self {
        let mut command = Self::gnutls("gnutls-cli", own, srtp, mtu, port);
        command.args(["--insecure", "--no-ca-verification", "127.0.0.1"]);
        Self::start(command, port, own)
    }

    pub(crate) fn der(&self) -> &'static [u8] {
        &certificate(self.certificate).der
    }

    /// Waits for a complete line that contains `text` and returns the whole output.
    fn wait_for(&self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let printed = self.printed.lock().unwrap().clone();
            if printed.split_once(text).is_some_and(|(_, behind)| behind.contains('\n')) {
                return printed;
            }
            assert!(Instant::now() < end, "no {text:?} in\n{printed}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for `text`, then ends the process.
    pub(crate) fn finish(self, text: &str) -> String {
        self.wait_for(text)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static, to: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            to.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    });
}

/// Returns a port that was free a moment ago, because the programs neither accept a socket nor report their
/// port.
fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
