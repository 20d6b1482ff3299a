"""The servers. Each has its own ports and one stream of the file, and tells how viewers request it."""

import base64
import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../players"))
import stage  # noqa: E402: background programs that end with this one

PEERS = f"{stage.ROOT}/target/peers"
STREAM = "networks"
FPS, GOP_S, VIDEO_BITS = 25, 2, 2_400_000
# For the publisher's page.
MEDIA = {"fps": FPS, "bits": VIDEO_BITS}


# The coders of a film, without B-pictures and hidden ones: each picture is shown, and is a reference for the next.
CODERS = {
    "H.264": ["-c:v", "libx264", "-preset", "veryfast", "-profile:v", "main", "-bf", "0", "-sc_threshold", "0"],
    "VP8": ["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-lag-in-frames", "0", "-auto-alt-ref", "0"],
}


def film(place, seconds, codec="H.264"):
    """A file that all servers are sent: constant bit rate, in motion; and Opus."""
    path = f"{place}/{codec.lower()}.mkv"
    picture = f"testsrc2=size=640x360:rate={FPS},noise=alls=16:allf=t+u,format=yuv420p"
    rate = ["-b:v", str(VIDEO_BITS), "-minrate", str(VIDEO_BITS), "-maxrate", str(VIDEO_BITS), "-bufsize", str(VIDEO_BITS // 2)]
    video = [*CODERS[codec], "-g", str(FPS * GOP_S), *rate]
    audio = ["-c:a", "libopus", "-b:a", "64k", "-ac", "2"]
    sources = ["-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"]
    subprocess.run([stage.ffmpeg9(), "-v", "error", "-nostdin", "-y", *sources, "-t", str(seconds), *video, *audio, path], check=True)
    return path


def free_port(kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def program(name):
    return shutil.which(name, path=f"{PEERS}:{os.environ['PATH']}")


def answers(url, wanted=(200,)):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status in wanted
    except urllib.error.HTTPError as error:
        return error.code in wanted
    except OSError:
        return False


def told(url):
    """The JSON at an address; an empty object while no server answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return {}


def first_line(*command):
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return (said.stdout + said.stderr).strip().splitlines()[0]


class Running:
    """A server, until it is closed. `kind` and `options` are for the viewer, `way_in` for the page of a publisher, `FILMS` what it passes on."""

    kind, FILMS = "whep", ("H.264",)

    def __init__(self):
        self.processes, self.begun = [], None

    def send(self, path):
        """Publishes the file, and waits until the stream is live."""
        raise NotImplementedError

    def publish(self, path, *outputs):
        """Publishes the file in real time without re-encoding."""
        command = [stage.ffmpeg9(), "-v", "error", "-nostdin", "-re", "-i", path]
        for output in outputs:
            command += ["-c", "copy", *output]
        self.processes.append(stage.begin(command))
        self.begun = time.monotonic()

    def begin(self, command, log, **environment):
        with open(log, "wb") as out:
            process = stage.begin(command, stdout=out, stderr=out, env={**os.environ, **environment})
        self.processes.append(process)
        return process

    def estimate(self):
        """The server's estimate of the path to the viewer in bits per second, if it reports one."""

    def close(self):
        for process in self.processes:
            stage.end(process)


class Millstream(Running):
    NAME, FILMS = "millstream", ("H.264", "VP8")

    @staticmethod
    def missing():
        return None if os.path.exists(stage.PROGRAM) else "not built"

    @staticmethod
    def version():
        return first_line(stage.PROGRAM, "--version")

    def __init__(self, place):
        super().__init__()
        server = stage.Server("server.workers=1", "app.publisherGraceMs=0", "metrics.per_stream=true", *os.environ.get("SETTINGS", "").split())
        self.processes.append(server.process)
        self.server = server
        self.options = {"url": f"http://{server.http}/live/whep/{STREAM}"}
        self.way_in = "whip", {"url": f"http://{server.http}/live/whip/{STREAM}"}
        self.metrics = f"http://{server.http}/metrics"

    def send(self, path):
        self.publish(path, ["-f", "rtsp", "-rtsp_transport", "tcp", f"rtsp://{self.server.ready['rtsp']}/live/{STREAM}"])
        stage.wait_for("the stream at millstream", lambda: self.server.is_live(STREAM))

    def estimate(self):
        with urllib.request.urlopen(self.metrics, timeout=5) as answer:
            found = re.search(r"^millstream_webrtc_estimate_bits\{[^}]*\} (\d+)", answer.read().decode(), re.M)
        return int(found[1]) if found else None


class MediaMtx(Running):
    NAME, FILMS = "MediaMTX", ("H.264", "VP8")

    @staticmethod
    def missing():
        return None if program("mediamtx") else "no mediamtx in target/peers or the path: sh benches/peers.sh mediamtx"

    @staticmethod
    def version():
        return f"MediaMTX {first_line(program('mediamtx'), '--version')}"

    def __init__(self, place):
        super().__init__()
        http, rtsp, media, api = free_port(), free_port(), free_port(socket.SOCK_DGRAM), free_port()
        off = "".join(f"{name}: no\n" for name in ("rtmp", "hls", "srt", "moq", "metrics", "pprof", "playback"))
        with open(f"{place}/mediamtx.yml", "w") as out:
            out.write(f"""{off}logLevel: info
api: yes
apiAddress: 127.0.0.1:{api}
rtspAddress: 127.0.0.1:{rtsp}
rtspTransports: [tcp]
webrtcAddress: 127.0.0.1:{http}
webrtcLocalUDPAddress: 127.0.0.1:{media}
webrtcIPsFromInterfaces: no
webrtcAdditionalHosts: [127.0.0.1]
paths:
  all_others:
""")
        self.begin([program("mediamtx"), f"{place}/mediamtx.yml"], f"{place}/mediamtx.log")
        stage.wait_for("MediaMTX", lambda: answers(f"http://127.0.0.1:{api}/v3/paths/list"))
        self.rtsp, self.api = rtsp, api
        self.options = {"url": f"http://127.0.0.1:{http}/{STREAM}/whep"}
        self.way_in = "whip", {"url": f"http://127.0.0.1:{http}/{STREAM}/whip"}

    def send(self, path):
        self.publish(path, ["-f", "rtsp", "-rtsp_transport", "tcp", f"rtsp://127.0.0.1:{self.rtsp}/{STREAM}"])
        stage.wait_for("the stream at MediaMTX", lambda: told(f"http://127.0.0.1:{self.api}/v3/paths/get/{STREAM}").get("ready"))


class Janus(Running):
    """Janus with its streaming plugin, which forwards RTP and keeps the latest key frame for new viewers. Browsers publish to a room."""

    NAME, kind = "Janus", "janus"
    LOOPBACK = f"{PEERS}/janus_loopback.so"

    @classmethod
    def missing(cls):
        return None if program("janus") and os.path.exists(cls.LOOPBACK) else "not installed: sh benches/networks/install.sh"

    @staticmethod
    def version():
        return re.sub(r"\s+", " ", first_line(program("janus"), "--version"))

    def __init__(self, place):
        super().__init__()
        http, audio, video = free_port(), free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_DGRAM)
        folder = f"{place}/janus"
        os.makedirs(folder, exist_ok=True)
        settings = {
            "janus": 'general: { debug_level = 4 }\nmedia: { }\nnat: { ice_enforce_list = "127.0.0.1" }\n'
                     'plugins: { disable = "' + ",".join(f"libjanus_{name}.so" for name in (
                         "audiobridge", "duktape", "echotest", "lua", "nosip", "recordplay", "sip", "textroom", "videocall",
                         "voicemail")) + '" }\n'
                     'transports: { disable = "' + ",".join(f"libjanus_{name}.so" for name in (
                         "mqtt", "nanomsg", "pfunix", "rabbitmq", "websockets")) + '" }\nevents: { broadcast = false }\n',
            "janus.transport.http": f'general: {{ http = true, port = {http}, ip = "127.0.0.1", https = false }}\nadmin: {{ admin_http = false }}\n',
            "janus.plugin.streaming": f"""general: {{ }}
{STREAM}: {{
    type = "rtp"
    id = 1
    audio = true
    video = true
    audioport = {audio}
    audioiface = "127.0.0.1"
    audiopt = 97
    audiocodec = "opus"
    videoport = {video}
    videoiface = "127.0.0.1"
    videopt = 96
    videocodec = "h264"
    videofmtp = "profile-level-id=42e01f;packetization-mode=1"
    videobufferkf = true
}}
""",
            "janus.plugin.videoroom": """general: { }
room-1: {
    publishers = 2
    bitrate = 0
    fir_freq = 0
    audiocodec = "opus"
    videocodec = "h264"
}
""",
        }
        for name, text in settings.items():
            with open(f"{folder}/{name}.jcfg", "w") as out:
                out.write(text)
        self.begin([program("janus"), "-F", folder, "-C", f"{folder}/janus.jcfg", "--interface", "127.0.0.1"], f"{place}/janus.log",
                   LD_PRELOAD=self.LOOPBACK)
        self.video, self.audio = video, audio
        self.options = {"url": f"http://127.0.0.1:{http}/janus", "id": 1}
        self.way_in = "janus", self.options
        stage.wait_for("Janus", lambda: answers(f"{self.options['url']}/info"))

    def send(self, path):
        to = lambda port: f"rtp://127.0.0.1:{port}?pkt_size=1200"
        self.publish(
            path, ["-map", "0:v", "-bsf:v", "h264_mp4toannexb", "-payload_type", "96", "-f", "rtp", to(self.video)],
            ["-map", "0:a", "-payload_type", "97", "-f", "rtp", to(self.audio)])


class LiveKit(Running):
    """LiveKit: published over WHIP, played with its own client."""

    NAME, kind = "LiveKit", "livekit"
    KEY, SECRET = "networks", "a secret of 32 characters or more, for this machine"

    @staticmethod
    def missing():
        if not os.path.exists(f"{HERE}/node_modules/livekit-client"):
            return "no livekit-client: sh benches/networks/install.sh"
        return None if program("livekit-server") else "not built: sh benches/networks/install.sh"

    @staticmethod
    def version():
        with open(f"{HERE}/livekit/go.mod") as file:
            return f"LiveKit {re.search(r'livekit-server v([0-9.]+)', file.read())[1]}"

    def __init__(self, place):
        super().__init__()
        http, media, tcp = free_port(), free_port(socket.SOCK_DGRAM), free_port()
        with open(f"{place}/livekit.yaml", "w") as out:
            out.write(f"""port: {http}
bind_addresses: [127.0.0.1]
keys: {{ {self.KEY}: "{self.SECRET}" }}
logging: {{ level: info }}
rtc:
  udp_port: {media}
  tcp_port: 0
  use_external_ip: false
  node_ip: 127.0.0.1
  enable_loopback_candidate: true
  interfaces: {{ includes: [lo] }}
""")
        self.begin([program("livekit-server"), "--config", f"{place}/livekit.yaml", "--node-ip", "127.0.0.1"], f"{place}/livekit.log")
        stage.wait_for("LiveKit", lambda: answers(f"http://127.0.0.1:{http}/"))
        self.http = http
        self.options = {"url": f"ws://127.0.0.1:{http}", "token": self.token("viewer")}
        self.way_in = "livekit", {"url": f"ws://127.0.0.1:{http}", "token": self.token("publisher")}

    def send(self, path):
        self.publish(path, ["-f", "whip", "-authorization", self.token("publisher"), f"http://127.0.0.1:{self.http}/whip/v1"])
        stage.wait_for("the stream at LiveKit", self.publishes)

    def token(self, identity, **grants):
        """A token with which an identity may join the room."""
        grants = {"roomJoin": True, "room": STREAM, "canPublish": True, "canSubscribe": True, **grants}
        claims = {"iss": self.KEY, "sub": identity, "exp": int(time.time()) + 3600, "nbf": int(time.time()) - 60, "video": grants}
        plain = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=")
        text = b".".join(plain(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
        return (text + b"." + plain(hmac.new(self.SECRET.encode(), text, hashlib.sha256).digest())).decode()

    def publishes(self):
        """True if the room has both tracks."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}/twirp/livekit.RoomService/ListParticipants", json.dumps({"room": STREAM}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self.token('admin', roomAdmin=True)}"})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return any(len(one.get("tracks", [])) > 1 for one in json.load(answer).get("participants", []))
        except OSError:
            return False


class Srs(Running):
    """SRS: published over WHIP, so that it can request key frames from the publisher."""

    NAME = "SRS"

    @staticmethod
    def missing():
        return None if program("srs-webrtc") else "no srs-webrtc in target/peers or the path: sh benches/peers.sh srs-webrtc"

    @staticmethod
    def version():
        return f"SRS {first_line(program('srs-webrtc'), '-v')}"

    def __init__(self, place):
        super().__init__()
        http, rtmp, media = free_port(), free_port(), free_port(socket.SOCK_DGRAM)
        with open(f"{place}/srs.conf", "w") as out:
            out.write(f"""daemon off;
listen 127.0.0.1:{rtmp};
pid {place}/srs.pid;
max_connections 100;
srs_log_tank console;
http_api {{ enabled on; listen 127.0.0.1:{http}; }}
rtc_server {{ enabled on; listen {media}; candidate 127.0.0.1; }}
vhost __defaultVhost__ {{ rtc {{ enabled on; rtmp_to_rtc off; rtc_to_rtmp off; }} }}
""")
        self.begin([program("srs-webrtc"), "-c", f"{place}/srs.conf"], f"{place}/srs.log")
        api = f"http://127.0.0.1:{http}"
        stage.wait_for("SRS", lambda: answers(f"{api}/api/v1/versions"))
        self.api = api
        self.options = {"url": f"{api}/rtc/v1/whep/?app=live&stream={STREAM}"}
        self.way_in = "whip", {"url": f"{api}/rtc/v1/whip/?app=live&stream={STREAM}"}

    def send(self, path):
        self.publish(path, ["-f", "whip", self.way_in[1]["url"]])
        streams = lambda: told(f"{self.api}/api/v1/streams/").get("streams", [])
        stage.wait_for("the stream at SRS", lambda: any(stream["publish"]["active"] for stream in streams()))


ALL = (Millstream, MediaMtx, Janus, LiveKit, Srs)
