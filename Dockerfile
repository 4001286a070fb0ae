# `ndpp serve` in a container. Build it in a checkout, and mount a folder with a model and a token that user 10001 may read:
#
#   docker build -t ndpp .
#   docker run -p 127.0.0.1:8000:8000 -v /srv/ndpp:/srv/ndpp:ro ndpp
#
# Arguments replace those of CMD: docker run … ndpp /srv/ndpp/other.safetensors --host 0.0.0.0 --token-file /srv/ndpp/token --workers 4

FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/ndpp && /opt/ndpp/bin/python -m pip install --no-cache-dir ".[cli,serve]"

FROM python:3.13-slim
COPY --from=build /opt/ndpp /opt/ndpp
RUN useradd --system --uid 10001 ndpp && install --directory --owner=ndpp /var/cache/ndpp
USER 10001
ENV NUMBA_CACHE_DIR=/var/cache/ndpp OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["/opt/ndpp/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/ready')"]
ENTRYPOINT ["/opt/ndpp/bin/ndpp", "serve"]
CMD ["/srv/ndpp/model.safetensors", "--host", "0.0.0.0", "--token-file", "/srv/ndpp/token"]
