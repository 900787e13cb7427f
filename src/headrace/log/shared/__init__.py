"""The embedded log on file systems that machines share: HDFS (hdfs.py) and S3 (s3.py). Each opens with its drawing and its crash story.

Both keep the batches of record.py in files named by the first offset in them. Readers are the same (reader.py): they list what is there
and walk to the end of the newest file. Writers differ, because HDFS lets files grow and has leases, and S3 has neither, but can refuse
to make an object twice.
"""
