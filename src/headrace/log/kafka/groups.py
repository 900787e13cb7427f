"""Consumer groups: how far other programs have read a topic, as they have committed it."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

from headrace.log.base import Reader
from headrace.log.kafka.cluster import Cluster


def readers_of(cluster: Cluster, name: str) -> Iterator[Reader]:
    """Every group that has committed an offset of the topic of this name, by partition. Groups that the user may not see are left out."""
    admin, timeout_s = cluster.admin(), cluster.config.timeout
    try:
        listed = admin.list_consumer_groups(request_timeout=timeout_s).result()
        for group in sorted(found.group_id for found in listed.valid or ()):
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=timeout_s)
            for place in asked[group].result().topic_partitions or ():
                if place.topic == name and place.offset >= 0:
                    yield Reader(group, place.partition, place.offset)
    except KafkaException as error:
        raise cluster.failure(error, f"look for the consumer groups of topic {name}") from error
