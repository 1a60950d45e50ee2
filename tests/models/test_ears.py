"""Spectrograms: a tone's energy is in its band and a click's in its frames; the same numbers as transformers' own functions."""

import numpy as np
import pytest
import torch
from palaestra.errors import UserError
from palaestra.models.ears import (
    BANDS,
    FRAMES,
    HOP,
    RATE,
    Ears,
    count_sound_places,
    from_mel,
    log_mel,
    mel_filters,
    sound_columns,
    spectrogram,
    to_mel,
)
from palaestra.sounds import Sound, resample, samples_of
from transformers import audio_utils

SECOND = np.arange(RATE) / RATE


def tone(hertz, n=RATE, rate=RATE):
    return np.sin(2 * np.pi * hertz * np.arange(n) / rate)


def test_slaneys_scale_at_the_numbers_that_define_it():
    """1000 Hz is 15 mel, 200/3 Hz a mel below; 6400 Hz is 27 steps above."""
    assert to_mel(np.array([0, 200, 1000, 6400])).tolist() == pytest.approx([0, 3, 15, 42])
    assert from_mel(np.array([0, 3, 15, 42])).tolist() == pytest.approx([0, 200, 1000, 6400])


@pytest.mark.parametrize("hertz", [150, 440, 1000, 2200, 3500])
def test_a_tones_energy_is_in_the_band_around_it(hertz):
    """40 bands evenly in mel up to 4 kHz (15 + 27 log 4 / log 6.4 = 35.1645 mel): band b is about (b + 1) / 41 of that."""
    mel = log_mel(tone(hertz))
    top = 15 + 27 * np.log(4) / np.log(6.4)
    mel_of_tone = hertz * 3 / 200 if hertz < 1000 else 15 + 27 * np.log(hertz / 1000) / np.log(6.4)
    nearest = mel_of_tone / top * 41 - 1
    assert mel.shape == (BANDS, FRAMES) and np.abs(mel.argmax(0)[1:-1] - nearest).max() <= 1
    power = 10 ** (4 * mel[:, 10:-10] - 4)
    around = [b for b in range(BANDS) if abs(b - nearest) < 2.5]
    assert power[around].sum() / power.sum() > 0.99


def test_the_power_of_a_tone_by_hand():
    """A Hann window of 320 over a tone on a bin: the bin has (320 / 4)^2, its neighbours a quarter of that in power."""
    x = tone(1000)  # bin 40 of 25 Hz
    filters = mel_filters()
    expected = np.log10(6400 * filters[40] + 1600 * (filters[39] + filters[41]) + 1e-300)
    loudest = expected.argmax()
    assert log_mel(x)[loudest, 20] == pytest.approx((expected[loudest] + 4) / 4, abs=1e-4)


def test_a_click_is_in_its_frames_and_silence_at_the_floor():
    x = np.zeros(RATE)
    x[25 * HOP] = 1.0  # in the middle of frame 25
    mel = log_mel(x)
    assert mel[:, 25].min() > mel[:, 27].max() and mel[:, 24:27].max() == mel.max()
    # decades below the loudest that are told apart: 8, so 2 after the division by 4
    assert mel[:, 30].max() == pytest.approx(mel.max() - 2, abs=1e-5)
    assert log_mel(np.zeros(RATE)).tolist() == np.full((BANDS, FRAMES), -1.5, np.float32).tolist()


def test_the_same_numbers_as_the_functions_of_transformers():
    filters = audio_utils.mel_filter_bank(161, BANDS, 0.0, 4000.0, RATE, norm="slaney", mel_scale="slaney")
    np.testing.assert_allclose(mel_filters(), filters, atol=1e-12)
    x = np.random.default_rng(0).normal(0, 0.1, RATE) + tone(700) * SECOND
    theirs = audio_utils.spectrogram(
        x,
        audio_utils.window_function(320, "hann"),
        frame_length=320,
        hop_length=HOP,
        power=2.0,
        mel_filters=filters,
        log_mel="log10",
    )[:, :-1]
    np.testing.assert_allclose(log_mel(x), (np.maximum(theirs, theirs.max() - 8) + 4) / 4, atol=1e-5)


@pytest.mark.parametrize("rate", [16000, 22050, 44100, 4000])
def test_a_tone_stays_itself_at_another_rate(rate):
    """440 periods a second fit, so Fourier's transform is exact, and above half of the rate nothing is left."""
    x = resample(tone(440, rate, rate), rate, RATE)
    np.testing.assert_allclose(x, tone(440), atol=1e-9)
    if rate > RATE:
        assert np.abs(resample(tone(4000, rate, rate) + tone(5000, rate, rate), rate, RATE)).max() < 1e-9


def test_short_sounds_are_silent_behind_their_end_and_long_ones_are_refused():
    half = Sound.from_samples(tone(440, 4000) * 0.5, RATE)
    mel = spectrogram(half).numpy()
    padded = np.concatenate([samples_of(half), np.zeros(4000)])
    np.testing.assert_allclose(mel, log_mel(padded), atol=1e-6)
    ears = Ears(24)
    assert count_sound_places(ears, half, "tiny") == 12
    for n in (0, RATE + 1):
        with pytest.raises(UserError, match="cut it"):
            count_sound_places(ears, Sound.from_samples(np.zeros(n), RATE), "tiny")


def test_ears_have_twelve_places_and_the_same_start_everywhere():
    ears, again = Ears(24), Ears(24)
    mel = spectrogram(Sound.from_samples(tone(440), RATE))[None]
    with torch.no_grad():
        heard = ears(mel)
    assert heard.shape == (1, 12, 24)
    assert all(torch.equal(a, b) for a, b in zip(ears.parameters(), again.parameters(), strict=True))
    # two strided convolutions: what comes late in the sound changes late places alone
    late = spectrogram(Sound.from_samples(np.where(SECOND < 0.75, tone(440), tone(1500)), RATE))[None]
    with torch.no_grad():
        gap = (ears(late) - heard).abs().amax((0, 2))
    assert float(gap[:8].max()) < 1e-3 < float(gap[-2:].min())


def test_samples_of_rows_of_other_lengths_fill_a_batch():
    a, b = (Sound.from_samples(tone(440, n), RATE) for n in (100, 60))
    columns = sound_columns([(a, b), (), (b,)])
    assert columns["wave"].shape == (3, 2, 100)
    # what a row lacks is filled up with a sound that none of its places is of
    assert columns["heard"][:, :, 0].tolist() == [[100, 60], [60, 60], [60, 60]]
    assert columns["heard"][:, :, 1].unique().tolist() == [RATE]
    assert sound_columns([(), ()]) == {}
