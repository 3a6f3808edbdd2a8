"""Small files in each published format of traces, made by hand from its description."""

from __future__ import annotations

# three of the four lines that the publisher's page shows
HSDPA = """1289406399 549692 59.851754 10.781778 248069 1008
1289406400 550772 59.851864 10.781833 191698 1080
1289406401 551773 59.851964 10.781901 280579 1001
"""
METS = "3.97,Mbits/sec\n375,Kbits/sec\n0.00,bits/sec\n"
STARLINK = """timestamp_start,timestamp_end,server,ip_protocol,transport_protocol,download,upload,\
priority,average_speed,download_mbps,upload_mbps
2024-01-11 10:06:39,2024-01-11 10:06:40,192.0.2.1,v4,UDP,101856000,7448000,1,0,101.856,7.448
2024-01-11 10:06:40,2024-01-11 10:06:41,192.0.2.1,v4,UDP,67160000,,1,0,67.16,
2024-01-11 10:07:22,2024-01-11 10:07:23,192.0.2.1,v4,UDP,0,12718000,1,0,0,12.718
"""
IRISH = """Timestamp,Longitude,Latitude,Speed,NetworkMode,CQI,RSSI,DL_bitrate,UL_bitrate,State
2019.12.16_13.40.04,-8.39,51.88,0,5G,15,-90,72,20,D
2019.12.16_13.40.05,-8.39,51.88,0,5G,15,-90,0,0,D
2019.12.16_13.40.05,-8.39,51.88,0,5G,15,-90,9000,0,D
2019.12.16_13.40.07,-8.39,51.88,0,5G,15,-90,250000,300,D
"""
FCC = """unit_id,dtime,target,address,fetch_time,bytes_total,bytes_sec,objects
7,2016-06-01 02:00:00,example.org,192.0.2.1,1000,9,3000,1
7,2016-06-01 01:00:00,example.org,192.0.2.1,1000,9,1000,1
8,2016-06-01 01:00:00,example.org,192.0.2.1,1000,9,5000,1
"""
TEXTS = {
    "hsdpa": HSDPA,
    "nyu-mets": METS,
    "starlink-road": STARLINK,
    "irish-5g": IRISH,
    "fcc-webget": FCC,
}
