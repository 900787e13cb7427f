"""Programs that `bench/capture_network.py` and `bench/live_kafka.py` measure; they speak as those of bench/decode_peers do."""
