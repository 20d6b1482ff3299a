//! Servers of other projects: names, supported protocols, and configuration files.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use super::load::Addresses;
use super::options::{Class, Options};

/// A server of another project, found on the `PATH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// nginx with its RTMP module, one worker process.
    Nginx,
    /// MediaMTX.
    MediaMtx,
    /// SRS with its defaults: media for a viewer waits up to 350 ms, to be sent in larger writes.
    Srs,
    /// SRS with the settings that its documentation recommends for low latency.
    SrsRealtime,
    /// ZLMediaKit, one thread.
    ZlMediaKit,
}

impl Peer {
    pub const ALL: [Self; 5] = [Self::Nginx, Self::MediaMtx, Self::Srs, Self::SrsRealtime, Self::ZlMediaKit];

    /// Name of the server in `--servers` and in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::MediaMtx => "mediamtx",
            Self::Srs => "srs",
            Self::SrsRealtime => "srs-realtime",
            Self::ZlMediaKit => "zlmediakit",
        }
    }

    pub const fn program(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::MediaMtx => "mediamtx",
            Self::Srs | Self::SrsRealtime => "srs",
            Self::ZlMediaKit => "MediaServer",
        }
    }

    /// True if the server has viewers of a class.
    pub const fn serves(self, class: Class) -> bool {
        match self {
            Self::Nginx => matches!(class, Class::Rtmp),
            Self::MediaMtx => matches!(class, Class::Rtmp | Class::Rtsp | Class::Srt | Class::Whep),
            Self::Srs | Self::SrsRealtime => matches!(class, Class::Rtmp | Class::Flv),
            Self::ZlMediaKit => {
                matches!(class, Class::Rtmp | Class::Flv | Class::Ws | Class::Rtsp | Class::Srt)
            }
        }
    }

    /// Writes the server's configuration file to `home` and adds it to the command. Returns the addresses at which
    /// the server will listen.
    pub fn configure(self, command: &mut Command, home: &Path, options: &Options) -> io::Result<Addresses> {
        let (text, publish, play) = match self {
            Self::Nginx => nginx(home, options.nginx_chunk)?,
            Self::MediaMtx => mediamtx(options.class)?,
            Self::Srs => srs(home, options.class, "")?,
            Self::SrsRealtime => {
                srs(home, options.class, "tcp_nodelay on; min_latency on; play { mw_latency 0; }")?
            }
            Self::ZlMediaKit => zlmediakit(options.class)?,
        };
        let file = home.join("settings");
        fs::write(&file, text)?;
        match self {
            // Without `-p`: the RTMP module is in the prefix with which the package was built.
            Self::Nginx => command.arg("-c").arg(file).arg("-e").arg(home.join("error.log")),
            Self::MediaMtx => command.arg(file),
            Self::Srs | Self::SrsRealtime => command.current_dir(home).arg("-c").arg(file),
            Self::ZlMediaKit => command.current_dir(home).args(["-t", "1", "-l", "4", "-c"]).arg(file),
        };
        Ok(Addresses { publish, play, rest: publish, bare: false, other: Some(self) })
    }
}

/// A configuration file, and the addresses to publish to and to play from.
type Configured = (String, SocketAddr, SocketAddr);

/// Finds a port that was free a moment ago, for servers that cannot bind any free port and report which.
fn free() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn nginx(home: &Path, chunk_size: usize) -> io::Result<Configured> {
    let address = free()?;
    let text = format!(
        "load_module modules/ngx_rtmp_module.so;\ndaemon off;\nmaster_process off;\nuser root;\n\
         error_log {0}/error.log error;\npid {0}/pid;\nworker_rlimit_nofile 20000;\n\
         events {{ worker_connections 16384; }}\n\
         rtmp {{ access_log off; server {{ listen {address}; chunk_size {chunk_size}; \
         application live {{ live on; }} }} }}\n",
        home.display()
    );
    Ok((text, address, address))
}

fn mediamtx(class: Class) -> io::Result<Configured> {
    let (rtmp, rtsp, http, udp, srt) = (free()?, free()?, free()?, free()?, free()?);
    let text = format!(
        "logLevel: error\nhls: false\nmoq: false\nrtmpAddress: {rtmp}\n\
         rtspAddress: {rtsp}\nrtspTransports: [tcp]\nsrtAddress: {srt}\n\
         webrtcAddress: {http}\nwebrtcLocalUDPAddress: {udp}\nwebrtcIPsFromInterfaces: false\n\
         webrtcAdditionalHosts: [127.0.0.1]\npaths:\n  all_others:\n"
    );
    let play = match class {
        Class::Rtsp => rtsp,
        Class::Srt | Class::SrtAes => srt,
        Class::Whep => http,
        Class::Rtmp | Class::Flv | Class::Flvs | Class::Ws => rtmp,
    };
    Ok((text, rtmp, play))
}

fn srs(home: &Path, class: Class, latency: &str) -> io::Result<Configured> {
    let (rtmp, http) = (free()?, free()?);
    let text = format!(
        "listen {};\nmax_connections 10000;\ndaemon off;\nsrs_log_tank file;\nsrs_log_file {1}/srs.log;\n\
         srs_log_level error;\npid {1}/pid;\nhttp_server {{ enabled on; listen {2}; dir {1}; }}\n\
         vhost __defaultVhost__ {{ {latency} http_remux {{ enabled on; mount [vhost]/[app]/[stream].flv; }} }}\n",
        rtmp.port(),
        home.display(),
        http.port(),
    );
    Ok((text, rtmp, if class == Class::Flv { http } else { rtmp }))
}

/// Makes the configuration of ZLMediaKit, in which only the measured protocol is enabled.
fn zlmediakit(class: Class) -> io::Result<Configured> {
    let (rtmp, rtsp, http, srt) = (free()?, free()?, free()?, free()?);
    let on = |is_on: bool| u8::from(is_on);
    let text = format!(
        "[general]\nenableVhost=0\n[protocol]\nenable_audio=1\nadd_mute_audio=0\nenable_hls=0\nenable_hls_fmp4=0\nenable_mp4=0\n\
         enable_fmp4=0\nenable_rtmp=1\nenable_rtsp={}\nenable_ts={}\n[rtmp]\nport={}\nsslport=0\n\
         [rtsp]\nport={}\nsslport=0\n[http]\nport={}\nsslport=0\n[srt]\nport={}\n[rtp_proxy]\nport=0\n\
         [rtc]\nport=0\ntcpPort=0\nsignalingPort=0\nsignalingSslPort=0\nicePort=0\niceTcpPort=0\n[shell]\nport=0\n",
        on(class == Class::Rtsp),
        on(class == Class::Srt),
        rtmp.port(),
        rtsp.port(),
        http.port(),
        srt.port(),
    );
    let play = match class {
        Class::Rtsp => rtsp,
        Class::Srt | Class::SrtAes => srt,
        Class::Flv | Class::Flvs | Class::Ws => http,
        Class::Rtmp | Class::Whep => rtmp,
    };
    Ok((text, rtmp, play))
}
