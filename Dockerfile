# Twinstep with PyTorch's CPU build: docker build -t twinstep . && docker run --rm twinstep predict mlperf_dcnv2
FROM python:3.11-slim

WORKDIR /opt/twinstep
COPY . .
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "torch==2.13.0" \
    && pip install --no-cache-dir --constraint constraints.txt . \
    && useradd --create-home twinstep

USER twinstep
WORKDIR /home/twinstep
ENTRYPOINT ["twinstep"]
CMD ["--help"]
